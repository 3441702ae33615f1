"""Steps of a server, read off the stamps of its clients: nothing but what came, and when.

A step gives one token to every request that runs, so tokens that come together are a step, and the
time from one such group to the next is how long the later one took. What it computed follows from
who got a token (decodes, at a known context) and who got the first one (a prompt), given the
server's scheduler and token budget. Steps whose content could be more than one thing are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from policies.batch import BatchShape
from policies.config import PolicyConfig
from sim.step_times.step_time import FloatArray, features

Chunks = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ObservedRequest:
    """One request as its client saw it; ``stamps_s`` are of its tokens, in order."""

    sent_s: float
    prompt_tokens: int
    stamps_s: tuple[float, ...]
    cached_tokens: int = 0

    @property
    def ttft_s(self) -> float:
        """From sent to the first token; infinite where there was none."""
        return self.stamps_s[0] - self.sent_s if self.stamps_s else float("inf")

    @property
    def chunk(self) -> tuple[int, int]:
        """The prompt as one chunk: (first position, rows)."""
        return self.cached_tokens, max(1, self.prompt_tokens - self.cached_tokens)


@dataclass(slots=True)
class ObservedStep:
    """Tokens that came together: their stamps by answer, and whose were first tokens."""

    stamps_s: dict[int, float] = field(default_factory=dict)
    newcomers: set[int] = field(default_factory=set)

    @property
    def end_s(self) -> float:
        """The mean stamp."""
        return sum(self.stamps_s.values()) / len(self.stamps_s)

    @property
    def decoders(self) -> set[int]:
        """Those that had tokens before."""
        return self.stamps_s.keys() - self.newcomers


@dataclass(frozen=True, slots=True)
class StepInterval:
    """A stretch of time and the steps that filled it.

    ``first_token`` marks one that began with a request's send, not with a step: the API's latency
    is in it; and in one that ``waited``, the wait of a static batch to fill.
    """

    shapes: tuple[BatchShape, ...]
    seconds: float
    first_token: bool = False
    waited: bool = False

    def row(self) -> list[float]:
        """Features of the steps, summed, then the two marks."""
        summed: FloatArray = np.sum([features(shape) for shape in self.shapes], axis=0)
        return [*summed.tolist(), float(self.first_token), float(self.waited)]


def observed_steps(answers: Sequence[ObservedRequest]) -> list[ObservedStep]:
    """Group the tokens of a burst by step.

    A token begins a new group when its request has one in the last group already, or when it comes
    more than half a usual interval after the token before it.
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
    """What a burst, sent to an idle server with these policies, tells of its step times."""
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
        """First tokens of an idle server, then all steps that can be read."""
        if self._steps:
            yield from self._first_token()
        contents = [self._content(k) for k in range(len(self._steps))]
        for k in range(len(self._steps)):
            self._cut_prompt(k, contents)
        for k in range(1, len(self._steps)):
            chunks = contents[k]
            if chunks is not None and self._is_whole(k):
                yield StepInterval(self._shapes(k, chunks), self._seconds(k))

    def _tokens_before(self) -> list[list[int]]:
        """Tokens of every answer before each step."""
        counts, before = [0] * len(self._answers), []
        for step in self._steps:
            before.append(list(counts))
            for index in step.stamps_s:
                counts[index] += 1
        return before

    def _running(self, k: int) -> set[int]:
        """Who has begun and not ended when step k begins."""
        ends = (len(answer.stamps_s) for answer in self._answers)
        pairs = zip(self._emitted[k], ends, strict=True)
        return {i for i, (had, end) in enumerate(pairs) if 0 < had < end}

    def _is_whole(self, k: int) -> bool:
        """Whether the server was busy and everybody who should have got a token did."""
        step, running = self._steps[k], self._running(k)
        pauses = self._alternates and step.newcomers and not step.decoders
        return bool(running) and (pauses or step.decoders == running)

    def _content(self, k: int) -> list[Chunks] | None:
        """Prompt chunks of the steps that end at k, where they cannot be anything else."""
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
        """Whether a part of a prompt that ends later may have been computed in step k.

        Not if it came later, found no place, would have ended there, or waited for a step that
        holds it whole.
        """
        step, answer = self._steps[k], self._answers[index]
        idle = not self._running(k)  # then steps before k may be hidden: only its end is known
        known_s = self._steps[k if idle else k - 1].end_s
        if answer.sent_s >= known_s or self._is_full(k):
            return False
        if step.newcomers and self._policies.batching != "chunked":
            return False
        if self._waiting(k) - step.newcomers - {index}:
            return True
        rows = sum(self._answers[i].chunk[1] for i in step.newcomers) + len(step.decoders)
        return rows + answer.chunk[1] > self._policies.token_budget

    def _cut_prompt(self, k: int, contents: list[list[Chunks] | None]) -> None:
        """A lone prompt beside decodes, longer than the budget: a piece in each step."""
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
        """Who was sent before step k began and had no token yet."""
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
        """Members of the static batch that runs in step k: its ended rows are computed as well."""
        begun = max(j for j in range(k + 1) if self._steps[j].newcomers)
        return self._steps[begun].newcomers

    def _seconds(self, k: int) -> float:
        """From the step before, by those that got a token in both where there are any."""
        step, before = self._steps[k].stamps_s, self._steps[k - 1].stamps_s
        both = step.keys() & before.keys()
        if both:
            return float(np.mean([step[i] - before[i] for i in both]))
        return self._steps[k].end_s - self._steps[k - 1].end_s

    def _first_token(self) -> Iterator[StepInterval]:
        """From a send to an idle server until its first step's end."""
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
    """Decodes at these contexts and prompt chunks; a chunk of one row is a decode."""
    single = [start + 1 for start, rows in chunks if rows == 1]
    longer = tuple(chunk for chunk in chunks if chunk[1] > 1)
    decodes = len(contexts) + len(single)
    return BatchShape(decodes, sum(contexts) + sum(single), decodes, longer)


def pieces(chunk: tuple[int, int], budget: int) -> list[tuple[int, int]]:
    """A prompt cut to ``budget`` rows per step."""
    start, rows = chunk
    count = ceil(rows / max(1, budget))
    return [(start + j * budget, min(budget, rows - j * budget)) for j in range(count)]
