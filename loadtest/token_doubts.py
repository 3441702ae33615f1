"""Where a server does not say enough about its tokens: which figures rest on a guess."""

import pandas as pd


def token_doubts(requests: pd.DataFrame) -> list[str]:
    """A line for each kind of guess that finished requests needed; none where all was told."""
    if "tokens_from" not in requests:
        return []
    finished = requests[requests["status"] == "finished"]
    chunks = finished["chunk_s"].map(len)
    guessed = finished["tokens_from"] == "events"
    several = ~guessed & ~finished["first_chunk_told"] & (finished["output_tokens"] > chunks)
    doubts = []
    if count := int(guessed.sum()):
        doubts.append(
            f"TOKENS GUESSED for {count} requests: without usage, each chunk is counted as one "
            "token, and TPOT is the gap between chunks"
        )
    if count := int(several.sum()):
        per_chunk = finished["output_tokens"][several].sum() / chunks[several].sum()
        doubts.append(
            f"TPOT TOO SHORT for {count} requests: their chunks hold {per_chunk:.3g} tokens on "
            "average, the server does not say how many the first one holds, and one is assumed"
        )
    return doubts
