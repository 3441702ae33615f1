"""The spans of each request: contiguous, from its scheduled time to its last token.

Spans are the stages of ``sim.explain.stages``, cut where a request was preempted. A span
"preempted" lasts until the request is as far as before: it is resumed, and the lost tokens are
computed again. A run does not keep which chunk of a step belongs to which request. So the recompute
is taken to end with the step by which as many prompt rows have run as the request had tokens, or
after which no prompt rows run: at most one step off without a prefix cache. A request that was
preempted before its first token is in "prefill" as soon as it is resumed, a request that was
swapped out in "decode".
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from servetwin.sim.explain.stages import client_stages, server_stages
from servetwin.sim.explain.step_rows import SLACK_S, StepRows, by_replica
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import ApiLatency

Pause = tuple[float, float]
"""Start and end of a preemption, in seconds."""


class Span(NamedTuple):
    """A part of the time of a request: ``part`` is a stage, or "preempted"."""

    part: str
    start_s: float
    end_s: float


class RequestSpans:
    """The spans of the requests of a run, by row."""

    def __init__(self, run: Run, api: ApiLatency | None) -> None:
        self.steps = by_replica(run.steps)
        self.stages = (
            server_stages(run, self.steps, api) if self.steps else client_stages(run.requests)
        )
        self._prompt_tokens = run.requests["prompt_tokens"].tolist()
        self._swaps = (run.scenario.get("policies") or {}).get("preemption") == "swap"
        self._pauses: dict[int, list[Pause]] = defaultdict(list)
        for row, start_s, end_s in run.pauses.dropna().itertuples(index=False):
            self._pauses[row].append((start_s, end_s))

    def of(self, row: int) -> list[Span]:
        """Return the spans of a request up to its last token; none without a last token."""
        points_s = self.stages.points_s[row].tolist()
        if points_s[-1] != points_s[-1]:
            return []
        spans = []
        for part, start_s, end_s in zip(self.stages.names, points_s, points_s[1:], strict=False):
            inside = [p for p in self._pauses.get(row, ()) if start_s <= p[0] < end_s]
            if part == "decode" and not self._swaps:
                inside = list(self._with_recompute(row, start_s, inside))
            spans += _cut(Span(part, start_s, end_s), inside)
        return [span for span in spans if span.end_s > span.start_s]

    def away_at(self, row: int, now_s: float) -> bool:
        """Return whether a request is preempted at a time."""
        return any(start_s <= now_s < end_s for start_s, end_s in self._pauses.get(row, ()))

    def steps_of(self, row: int) -> StepRows:
        """Return the steps of the replica that decoded a request."""
        return self.steps[int(self.stages.replicas[row, 1])]

    def _with_recompute(self, row: int, start_s: float, pauses: list[Pause]) -> Iterator[Pause]:
        steps = self.steps_of(row)
        tokens = self._prompt_tokens[row] + 1
        for lost_s, back_s in pauses:
            before = steps.within(start_s, lost_s)
            tokens += int(before.loc[before["decode_sequences"] > 0, "steps"].sum())
            start_s = _recomputed_s(steps, back_s, tokens)
            tokens += 1
            yield lost_s, start_s


def _cut(span: Span, pauses: list[Pause]) -> list[Span]:
    """Return the pieces of a span around its pauses, and the pauses, in order."""
    pieces, start_s = [], span.start_s
    for lost_s, back_s in pauses:
        until_s = min(back_s, span.end_s)
        pieces += [Span(span.part, start_s, lost_s), Span("preempted", lost_s, until_s)]
        start_s = until_s
    return [*pieces, Span(span.part, start_s, span.end_s)]


def _recomputed_s(steps: StepRows, back_s: float, tokens: int) -> float:
    """Return when the steps from ``back_s`` on have computed ``tokens`` prompt rows, or end."""
    frame = steps.frame
    chunks, rows = frame["prefill_chunks"].to_numpy(), frame["rows"].to_numpy()
    decodes = frame["decode_sequences"].to_numpy()
    place = int(np.searchsorted(steps.start_s, back_s - SLACK_S))
    left = tokens - int(rows[place] - decodes[place])
    while left > 0 and place + 1 < len(frame) and chunks[place + 1]:
        place += 1
        left -= int(rows[place] - decodes[place])
    return float(steps.end_s[place])
