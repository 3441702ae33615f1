"""Steps of a server as a black box, from the stamps of the tokens at its clients.

A step gives one token to every running request, so tokens that arrive together are of one step, and
the time from one such group to the next is the duration of the later step. The requests that
received a token (decodes, at a known context) or their first token (a prompt) tell what the step
computed, given the scheduler and the token budget of the server. Ambiguous steps are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.sim.step_times.step_time import FloatArray, features

Chunks = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ObservedRequest:
    """A request as its client observed it; ``stamps_s`` are those of its tokens, in order."""

    sent_s: float
    prompt_tokens: int
    stamps_s: tuple[float, ...]
    cached_tokens: int = 0

    @property
    def ttft_s(self) -> float:
        """First token less sent, in seconds; infinite without a token."""
        return self.stamps_s[0] - self.sent_s if self.stamps_s else float("inf")

    @property
    def chunk(self) -> tuple[int, int]:
        """The prompt as one chunk: (first position, rows)."""
        return self.cached_tokens, max(1, self.prompt_tokens - self.cached_tokens)


@dataclass(slots=True)
class ObservedStep:
    """Tokens that arrived together: stamps by request, and the requests with a first token."""

    stamps_s: dict[int, float] = field(default_factory=dict)
    newcomers: set[int] = field(default_factory=set)

    @property
    def end_s(self) -> float:
        """The mean stamp."""
        return sum(self.stamps_s.values()) / len(self.stamps_s)

    @property
    def decoders(self) -> set[int]:
        """The requests that had tokens before."""
        return self.stamps_s.keys() - self.newcomers


@dataclass(frozen=True, slots=True)
class StepInterval:
    """An interval of time that began at ``began_s``, and the steps in it.

    ``first_token`` marks an interval that begins when a request is sent: it includes the latency of
    the API. With ``waited`` it also includes the time a static batch waits to fill.
    """

    shapes: tuple[BatchShape, ...]
    seconds: float
    first_token: bool = False
    waited: bool = False
    began_s: float = 0.0

    def row(self) -> list[float]:
        """Return the sums of the features of the steps, then the two marks."""
        summed: FloatArray = np.sum([features(shape) for shape in self.shapes], axis=0)
        return [*summed.tolist(), float(self.first_token), float(self.waited)]


def observed_steps(answers: Sequence[ObservedRequest]) -> list[ObservedStep]:
    """Group the tokens of a burst by step.

    A token begins a new group if its request already has a token in the last group, or if it
    arrives more than half the median interval after the previous token.
    """
    gaps = [np.diff(answer.stamps_s) for answer in answers if len(answer.stamps_s) > 1]
    pause_s = float(np.median(np.concatenate(gaps))) / 2 if gaps else 0.0
    events = sorted((s, i) for i, answer in enumerate(answers) for s in answer.stamps_s)
    steps: list[ObservedStep] = []
    begun: set[int] = set()
    last_s = -np.inf
    for stamp_s, index in events:
        if not steps or index in steps[-1].stamps_s or stamp_s - last_s > pause_s:
            steps.append(ObservedStep())
        steps[-1].stamps_s[index] = last_s = stamp_s
        if index not in begun:
            begun.add(index)
            steps[-1].newcomers.add(index)
    return steps


def read_intervals(
    answers: Sequence[ObservedRequest], policies: PolicyConfig
) -> list[StepInterval]:
    """Return the intervals of a burst that was sent to an idle server with these policies."""
    return list(_Reader(answers, policies).intervals())


class _Reader:
    """One burst, step by step."""

    def __init__(self, answers: Sequence[ObservedRequest], policies: PolicyConfig) -> None:
        self._answers = answers
        self._policies = policies
        self._static = policies.batching == "static"
        self._alternates = policies.batching == "prefill-first"
        self._steps = observed_steps(answers)
        self._emitted = self._tokens_before()

    def intervals(self) -> Iterator[StepInterval]:
        """Yield the interval of the first token, then all unambiguous steps."""
        if self._steps:
            yield from self._first_token()
        contents = [self._content(k) for k in range(len(self._steps))]
        for k in range(len(self._steps)):
            self._cut_prompt(k, contents)
        for k in range(1, len(self._steps)):
            chunks = contents[k]
            if chunks is not None and self._is_whole(k):
                began_s = self._steps[k - 1].end_s
                yield StepInterval(self._shapes(k, chunks), self._seconds(k), began_s=began_s)

    def _tokens_before(self) -> list[list[int]]:
        """Return the tokens of every request before each step."""
        counts, before = [0] * len(self._answers), []
        for step in self._steps:
            before.append(list(counts))
            for index in step.stamps_s:
                counts[index] += 1
        return before

    def _running(self, k: int) -> set[int]:
        """Return the requests that run when step k begins."""
        ends = (len(answer.stamps_s) for answer in self._answers)
        pairs = zip(self._emitted[k], ends, strict=True)
        return {i for i, (had, end) in enumerate(pairs) if 0 < had < end}

    def _is_whole(self, k: int) -> bool:
        """Return whether the server was busy and every request due a token received one."""
        step, running = self._steps[k], self._running(k)
        pauses = self._alternates and step.newcomers and not step.decoders
        return bool(running) and (pauses or step.decoders == running)

    def _content(self, k: int) -> list[Chunks] | None:
        """Return the prompt chunks of the steps that end at k; None if ambiguous."""
        step = self._steps[k]
        waiting = {i for i in self._waiting(k) if i not in step.newcomers}
        if not step.newcomers:
            closed = self._static or self._alternates or self._is_full(k)
            return [()] if closed or not waiting else None
        if k == 0 or self._static or (waiting and not self._is_full(k, len(step.newcomers))):
            return None
        prompts = tuple(self._answers[i].chunk for i in sorted(step.newcomers))
        rows = sum(n for _, n in prompts)
        budget = self._policies.token_budget
        begun = any(self._may_have_begun(k - 1, i) for i in step.newcomers)
        if rows + len(step.decoders) <= budget and not begun:
            return [prompts]
        if self._alternates and len(prompts) == 1:
            return [(piece,) for piece in pieces(prompts[0], budget)]
        return None

    def _may_have_begun(self, k: int, index: int) -> bool:
        """Return whether a part of a prompt that ends later may have been computed in step k.

        Not if it was sent later, found no place, would have ended there, or waited for a step that
        holds all of it.
        """
        step, answer = self._steps[k], self._answers[index]
        idle = not self._running(k)  # then steps before k may be hidden: only its end is known
        known_s = self._steps[k if idle else k - 1].end_s
        if answer.sent_s >= known_s or self._is_full(k):
            return False
        if step.newcomers and self._policies.batching not in ("chunked", "unified"):
            return False
        if self._waiting(k) - step.newcomers - {index}:
            return True
        rows = sum(self._answers[i].chunk[1] for i in step.newcomers) + len(step.decoders)
        return rows + answer.chunk[1] > self._policies.token_budget

    def _cut_prompt(self, k: int, contents: list[list[Chunks] | None]) -> None:
        """Cut a single prompt beside decodes that is longer than the budget: a piece per step."""
        step = self._steps[k]
        if self._static or self._alternates or len(step.newcomers) != 1 or not step.decoders:
            return
        (index,) = step.newcomers
        cut = pieces(self._answers[index].chunk, self._policies.token_budget - len(step.decoders))
        first = k - len(cut) + 1
        if len(cut) == 1 or first < 1 or self._may_have_begun(first - 1, index):
            return
        between = self._steps[first:k]
        same = all(s.stamps_s.keys() == step.decoders and not s.newcomers for s in between)
        if same and all(self._waiting(j) <= {index} for j in range(first, k + 1)):
            for j, piece in zip(range(first, k + 1), cut, strict=True):
                contents[j] = [(piece,)]

    def _waiting(self, k: int) -> set[int]:
        """Return the requests that were sent before step k began and had no token yet."""
        if k == 0:
            return set()
        began_s = self._steps[k - 1].end_s
        return {
            i
            for i, answer in enumerate(self._answers)
            if answer.stamps_s and not self._emitted[k][i] and answer.sent_s < began_s
        }

    def _is_full(self, k: int, joining: int = 0) -> bool:
        return len(self._running(k)) + joining >= self._policies.max_seqs

    def _shapes(self, k: int, chunks: list[Chunks]) -> tuple[BatchShape, ...]:
        members = self._batch(k) if self._static else self._steps[k].decoders
        if not members and self._alternates:
            return tuple(shape([], piece) for piece in chunks)
        emitted = self._emitted[k]
        contexts = [self._answers[i].prompt_tokens + emitted[i] for i in members]
        return tuple(shape(contexts, piece) for piece in chunks)

    def _batch(self, k: int) -> set[int]:
        """Return the static batch that runs in step k: finished rows are computed as well."""
        begun = max(j for j in range(k + 1) if self._steps[j].newcomers)
        return self._steps[begun].newcomers

    def _seconds(self, k: int) -> float:
        """Return the duration of step k, from the requests with a token in it and the last step."""
        step, before = self._steps[k].stamps_s, self._steps[k - 1].stamps_s
        both = step.keys() & before.keys()
        if both:
            return float(np.mean([step[i] - before[i] for i in both]))
        return self._steps[k].end_s - self._steps[k - 1].end_s

    def _first_token(self) -> Iterator[StepInterval]:
        """Yield the interval from a send to an idle server until the end of its first step."""
        step = self._steps[0]
        chunks = [self._answers[i].chunk for i in sorted(step.newcomers)]
        sent_s = [self._answers[i].sent_s for i in step.newcomers]
        if self._static:
            rows = max(n for _, n in chunks)
            padded = shape([], tuple((start, rows) for start, _ in chunks))
            waited = len(chunks) < self._policies.max_seqs
            seconds = step.end_s - (min(sent_s) if waited else max(sent_s))
            yield StepInterval((padded,), seconds, first_token=True, waited=waited)
            return
        alone = all(
            a.sent_s > step.end_s
            for i, a in enumerate(self._answers)
            if a.stamps_s and i not in step.newcomers
        )
        if alone and len(chunks) == 1:
            cut = pieces(chunks[0], self._policies.token_budget)
            shapes = tuple(shape([], (piece,)) for piece in cut)
            yield StepInterval(shapes, step.end_s - sent_s[0], first_token=True)


def shape(contexts: Sequence[int], chunks: Chunks) -> BatchShape:
    """Return the shape of decodes at these contexts and chunks; a chunk of one row is a decode."""
    single = [start + 1 for start, rows in chunks if rows == 1]
    longer = tuple(chunk for chunk in chunks if chunk[1] > 1)
    decodes = len(contexts) + len(single)
    return BatchShape(decodes, sum(contexts) + sum(single), decodes, longer)


def pieces(chunk: tuple[int, int], budget: int) -> list[tuple[int, int]]:
    """Cut a prompt into pieces of at most ``budget`` rows."""
    start, rows = chunk
    count = ceil(rows / max(1, budget))
    return [(start + j * budget, min(budget, rows - j * budget)) for j in range(count)]
