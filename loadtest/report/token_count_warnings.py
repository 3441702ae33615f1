"""Where a server does not say enough about its tokens: which figures rest on a guess."""

import pandas as pd

EARLY_SHARE = 0.05
"""A first event without text is early where text came later by more than this share of TTFT."""


def token_count_warnings(requests: pd.DataFrame) -> list[str]:
    """A line for each kind of guess that finished requests needed; none where all was told.

    And one for first events that this client does not take for tokens, but others may.
    """
    if "tokens_from" not in requests:
        return []
    finished = requests[requests["status"] == "finished"]
    return [*_count_warnings(finished), *_first_token_warnings(finished)]


def _count_warnings(finished: pd.DataFrame) -> list[str]:
    chunks = finished["chunk_s"].map(len)
    guessed = finished["tokens_from"] == "events"
    several = ~guessed & ~finished["first_chunk_told"] & (finished["output_tokens"] > chunks)
    warnings = []
    if count := int(guessed.sum()):
        warnings.append(
            f"TOKENS GUESSED for {count} requests: without usage, each chunk is counted as one "
            "token, and TPOT is the gap between chunks"
        )
    if count := int(several.sum()):
        per_chunk = finished["output_tokens"][several].sum() / chunks[several].sum()
        warnings.append(
            f"TPOT TOO SHORT for {count} requests: their chunks hold {per_chunk:.3g} tokens on "
            "average, the server does not say how many the first one holds, and one is assumed"
        )
    return warnings


def _first_token_warnings(finished: pd.DataFrame) -> list[str]:
    """About answers whose first event has no text and is early: did it count, and may it?"""
    before_s = finished["first_sure_s"] - finished["first_event_s"]
    early = before_s > EARLY_SHARE * (finished["first_sure_s"] - finished["sent_s"])
    counted = early & (finished["first_token_s"] < finished["first_sure_s"])
    warnings = []
    if count := int(counted.sum()):
        warnings.append(
            f"TTFT IN DOUBT for {count} requests: their first event has no text, the server does "
            "not say whether it is a token, and it is taken for one; the first text came "
            f"{_ms(before_s[counted])} later"
        )
    if count := int((early & ~counted).sum()):
        warnings.append(
            f"EARLY FIRST EVENT in {count} requests: it has no text and is not taken for a token; "
            f"a client that does so reports a TTFT {_ms(before_s[early & ~counted])} too short"
        )
    return warnings


def _ms(durations_s: pd.Series) -> str:
    return f"{1e3 * durations_s.median():.3g} ms (median)"
