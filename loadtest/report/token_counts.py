"""Warnings about token counts: figures that rest on a guess, and prompts of other lengths."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.stream.doubts import LEAST_TOKENS
from servetwin.sim.records.columns import Frame
from servetwin.workloads.generators.prompts import prompt_text
from servetwin.workloads.program.package import shipped_json
from servetwin.workloads.tokenizer import LocalTokenizer
from servetwin.workloads.trace import Trace

_FILE: dict[str, dict[str, str]] = shipped_json("loadtest/report/token_doubts.json")
_TEXTS = _FILE["texts"]
# Tokens per chunk from which on most chunks hold several. With fewer, most hold one, the first
# too, and the others are tokens that decode to no text.
SEVERAL = 1.5
# What is wrong with a count of output tokens, by the doubt.
OUTPUT_DOUBTS = _FILE["counts"]
# Of the answers that are long enough to tell; fewer may have come while the client was busy.
BUFFERED_SHARE = 0.05
# A first event without text is early when text comes later by more than this share of TTFT.
EARLY_SHARE = 0.05


def token_count_warnings(requests: Frame, forced: bool = False) -> list[str]:
    """Return a line for each kind of guess in the token counts of the finished requests.

    First events that this client does not count as tokens, but others may, have a line too; and
    answers that are shorter than was ``forced``.
    """
    if "tokens_from" not in requests:
        return []
    finished = requests[requests["status"] == "finished"]
    if "usage_doubt" not in finished:  # as in run folders of older versions
        finished = finished.assign(usage_doubt=None, buffered=False)
    warnings = (_count_warnings, _usage_warnings, _buffer_warnings, _first_token_warnings)
    lines = [line for warn in warnings for line in warn(finished)]
    return [*lines, *(_short_answers(finished) if forced else [])]


def _count_warnings(finished: Frame) -> Iterator[str]:
    chunks, source = finished["chunk_s"].map(len), finished["tokens_from"]
    guessed = (source == "events") & ~finished["usage_doubt"].isin(OUTPUT_DOUBTS)
    several = finished["output_tokens"] >= SEVERAL * chunks
    several &= (source != "events") & ~finished["first_chunk_told"] & (chunks > 0)
    per_chunk = finished["output_tokens"][several].sum() / max(chunks[several].sum(), 1)
    yield from _line("guessed", guessed)
    yield from _line("unknown", source == "none")
    yield from _line("several", several, per_chunk=per_chunk)


def _usage_warnings(finished: Frame) -> Iterator[str]:
    """Yield a warning about counts of the server that cannot be true."""
    doubts = finished["usage_doubt"]
    counts = doubts.value_counts()
    output = [f"{why} ({counts[name]})" for name, why in OUTPUT_DOUBTS.items() if name in counts]
    yield from _line("output", doubts.isin(OUTPUT_DOUBTS), reasons=", ".join(output))
    yield from _line("prompt", doubts.isin(["prompt", "cached"]))


def _short_answers(finished: Frame) -> Iterator[str]:
    """Yield a warning about answers that end before the length that was forced."""
    known = finished["tokens_from"].isin(["usage", "token_ids"])
    yield from _line("short", known & (finished["output_tokens"] < finished["asked_output_tokens"]))


def _buffer_warnings(finished: Frame) -> Iterator[str]:
    """Yield a warning about answers that came in one piece, if some surely did so by the server.

    Those that came so while the client stood still are counted with them then, else not at all.
    """
    unclear = finished["buffered"].isna()
    buffered = finished["buffered"].eq(True)
    long_enough = buffered | ((finished["output_tokens"] >= LEAST_TOKENS) & ~unclear)
    if buffered.any() and buffered.sum() >= BUFFERED_SHARE * long_enough.sum():
        yield from _line("buffered", buffered | unclear)


def _first_token_warnings(finished: Frame) -> Iterator[str]:
    """Yield warnings about first events without text that come early."""
    before_s = finished["first_sure_s"] - finished["first_event_s"]
    early = before_s > EARLY_SHARE * (finished["first_sure_s"] - finished["sent_s"])
    counted = early & (finished["first_token_s"] < finished["first_sure_s"])
    for name, which in (("first", counted), ("early", early & ~counted)):
        yield from _line(name, which, before=_ms(before_s[which]))


def _line(name: str, which: Any, **values: object) -> Iterator[str]:
    """Yield the text on some of the requests, if there are any."""
    if count := int(which.sum()):
        share = count / len(which)
        yield _TEXTS[name].format(count=count, of=len(which), share=share, **values)


def _ms(durations_s: Any) -> str:
    return f"{1e3 * durations_s.median():.3g} ms (median)"


def prompt_lengths_note(requests: Frame, trace: Trace, counted_by: str | None = None) -> str | None:
    """Return a line where the server counts other prompt lengths; None where they agree.

    ``counted_by`` names the tokenizer that counted the prompts of the trace; then a line says so
    where they agree, too.

    A prompt of text has one common word per token of the trace; how many tokens the server's
    tokenizer makes of it is known from the usage only. Servers also add tokens: a first one, a chat
    template.
    """
    finished = requests[requests["status"] == "finished"]
    wanted_of = {request.request_id: request.prompt_tokens for request in trace}
    finished = finished[finished["request_id"].isin(wanted_of)]  # users may have sent more
    wanted = finished["request_id"].map(wanted_of).to_numpy(dtype=float)
    counted = finished["prompt_tokens"].to_numpy(dtype=float)
    if not len(finished):
        return None
    ours = f"{counted_by} counts" if counted_by else "the trace has"
    if (wanted == counted).all():
        return f"the server counts the prompt tokens that {ours}" if counted_by else None
    off = 100 * (counted / wanted - 1)
    low, high = np.percentile(off, [5, 95])
    return (
        f"the server counts {counted.sum():,.0f} prompt tokens where {ours} "
        f"{wanted.sum():,.0f} ({100 * (counted.sum() / wanted.sum() - 1):+.1f} %; "
        f"p5 to p95 of the requests {low:+.1f} % to {high:+.1f} %)"
    )


def counted_prompts(trace: Trace, endpoint: Endpoint, tokenizer: LocalTokenizer) -> Trace:
    """Return the trace with the length of each text that the endpoint was sent.

    Prompts of token ids are as long as the trace says.
    """
    if endpoint.prompt == "ids":
        return trace
    texts = [
        replace(r, prompt=prompt_text(r, endpoint.salt or "")) if r.prompt is None else r
        for r in trace
    ]
    return tokenizer.counted(replace(trace, requests=tuple(texts)))
