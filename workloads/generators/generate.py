"""Seeded synthetic traces of independent requests or closed-loop users, and what generators share.

A closed-loop user sends its next request some time after the answer to its last.
"""

from dataclasses import dataclass, replace

import numpy as np

from servetwin.workloads.errors import TraceError
from servetwin.workloads.fields import MAX_SECONDS
from servetwin.workloads.generators.arrivals import (
    ArrivalProcess,
    FloatArray,
    PoissonArrivals,
    describe,
)
from servetwin.workloads.generators.lengths import IntArray, LengthDistribution, TokenLaw
from servetwin.workloads.generators.pauses import PauseDistribution
from servetwin.workloads.generators.prefixes import PrefixStructure
from servetwin.workloads.readers.prompt_records import NO_TIMES
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

SOURCE = "generated"
MOST_REQUESTS = 10_000_000
"""A trace is held in memory, about 500 bytes a request."""
FOLLOWERS_NOTE = (
    "requests with a parent arrive delay_s after its arrival, the earliest they can: meant for"
    " closed-loop replay, where they arrive delay_s after its answer"
)


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """How many requests, when they come, how long they are and what they share."""

    requests: int
    arrivals: ArrivalProcess
    lengths: LengthDistribution
    prefixes: PrefixStructure | None = None

    def __post_init__(self) -> None:
        require_possible(self.requests)

    def describe(self) -> str:
        """Return all of it, as a note of the trace."""
        parts = [self.arrivals, self.lengths, *([self.prefixes] if self.prefixes else [])]
        return "; ".join([counted(self.requests, "request"), *map(describe, parts)])


def generate(spec: WorkloadSpec, seed: int) -> Trace:
    """Generate the trace of a specification; the same seed gives the same trace.

    Arrivals (to the microsecond), lengths and prefixes each have their own random stream, so
    a change of one distribution leaves the draws of the others. Raises TraceError for a negative
    seed.
    """
    arrivals_rng, lengths_rng, prefixes_rng = random_streams(seed, 3)
    arrivals_s = arrival_times_s(spec.arrivals, spec.requests, arrivals_rng)
    prompts, outputs = spec.lengths.sample(spec.requests, lengths_rng)
    ids, block_tokens = prefix_ids(spec.prefixes, prompts, prefixes_rng)
    rows = zip(arrivals_s.tolist(), prompts.tolist(), outputs.tolist(), ids, strict=True)
    requests = tuple(
        Request(f"{SOURCE}:{row}", *fields, block_tokens=block_tokens)
        for row, fields in enumerate(rows, 1)
    )
    return Trace(requests, SOURCE, notes=(f"{spec.describe()}; seed {seed}",))


@dataclass(frozen=True, slots=True)
class ClosedLoopSpec:
    """``users`` that each think, send a request, wait for the answer and think again, several
    times.
    """

    users: int
    requests_each: int
    lengths: LengthDistribution
    think: PauseDistribution
    prefixes: PrefixStructure | None = None

    def __post_init__(self) -> None:
        if self.users < 1 or self.requests_each < 1:
            given = f"{self.users} with {self.requests_each}"
            raise TraceError(f"a closed loop wants at least 1 user with 1 request, not {given}")
        require_possible(self.users * self.requests_each)

    def describe(self) -> str:
        """Return all of it, as a note of the trace."""
        each = f"{counted(self.users, 'user')} with {counted(self.requests_each, 'request')} each"
        parts = [self.lengths, *([self.prefixes] if self.prefixes else [])]
        return "; ".join([each, f"think times {describe(self.think)}", *map(describe, parts)])


def generate_closed_loop(spec: ClosedLoopSpec, seed: int) -> Trace:
    """Generate the trace of a specification; the same seed gives the same trace.

    A user is a ``tenant``; its first request arrives after its first think time, every other one
    has the one before as ``parent_id`` and the think time as ``delay_s``. Think times, lengths and
    prefixes each have their own random stream. Raises TraceError for a negative seed.
    """
    think_rng, lengths_rng, prefixes_rng = random_streams(seed, 3)
    total = spec.users * spec.requests_each
    thinks_s = spec.think.sample(total, think_rng).round(6)
    prompts, outputs = spec.lengths.sample(total, lengths_rng)
    ids, block_tokens = prefix_ids(spec.prefixes, prompts, prefixes_rng)
    draws = zip(thinks_s.tolist(), prompts.tolist(), outputs.tolist(), ids, strict=True)
    requests = []
    for user in range(1, spec.users + 1):
        arrival_s, parent_id = 0.0, None
        for number in range(1, spec.requests_each + 1):
            think_s, prompt_tokens, output_tokens, block_ids = next(draws)
            arrival_s = round(arrival_s + think_s, 6)
            request = Request(
                f"{SOURCE}:{user}.{number}",
                arrival_s,
                prompt_tokens,
                output_tokens,
                block_ids,
                block_tokens,
                parent_id=parent_id,
                delay_s=think_s if parent_id else None,
                tenant=f"user-{user}",
            )
            requests.append(request)
            parent_id = request.request_id
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(tuple(requests), SOURCE, notes=(f"{spec.describe()}; seed {seed}", FOLLOWERS_NOTE))


def require_possible(requests: int) -> None:
    """Raise ``TraceError`` for a number of requests that no trace has."""
    if requests < 1:
        raise TraceError(f"a trace has at least 1 request, not {requests}")
    if requests > MOST_REQUESTS:
        raise TraceError(f"a trace has at most {MOST_REQUESTS:,} requests, not {requests:,}")


def random_streams(seed: int, count: int, *part: int) -> list[np.random.Generator]:
    """Return independent random streams of one seed, or of one numbered part of a workload.

    Raises TraceError where the seed is negative.
    """
    if seed < 0:
        raise TraceError(f"a seed must be 0 or positive, not {seed}")
    root = np.random.SeedSequence(seed, spawn_key=part)
    return [np.random.default_rng(child) for child in root.spawn(count)]


def prefix_ids(
    prefixes: PrefixStructure | None, prompts: IntArray, rng: np.random.Generator
) -> tuple[list[tuple[int, ...]], int | None]:
    """Return the block ids of each prompt and the tokens of a block; none without prefixes."""
    if prefixes is None:
        return [()] * len(prompts), None
    return prefixes.block_ids(prompts, rng), prefixes.block_tokens


def arrival_times_s(process: ArrivalProcess, count: int, rng: np.random.Generator) -> FloatArray:
    """Return ``count`` arrivals in seconds, to the microsecond, the first at 0.

    Raises ``TraceError`` where they take longer than a trace may.
    """
    times_s = np.concatenate([[0.0], np.cumsum(process.gaps_s(count - 1, rng))]).round(6)
    if not times_s[-1] <= MAX_SECONDS:
        last_s = f"{count:,} arrivals would take {times_s[-1]:.3g} s"
        raise TraceError(f"--rate: {last_s}; a trace lasts at most {MAX_SECONDS:.3g} s")
    return times_s


def with_arrivals(trace: Trace, rate_per_s: float, seed: int) -> Trace:
    """Return a trace without times as a Poisson process of this rate; the order stays."""
    (rng,) = random_streams(seed, 1)
    times_s = arrival_times_s(PoissonArrivals(rate_per_s), len(trace), rng).tolist()
    requests = [replace(r, arrival_s=at_s) for r, at_s in zip(trace, times_s, strict=True)]
    notes = tuple(note for note in trace.notes if note != NO_TIMES)
    note = f"no arrival times in the file: a Poisson process of {rate_per_s:g}/s (seed {seed})"
    return replace(trace, notes=notes, timed=True).replaced(requests, note)


def with_output_lengths(trace: Trace, outputs: TokenLaw, shown: str, seed: int) -> Trace:
    """Return the trace with other output lengths, drawn from ``outputs``; answers count no more."""
    _, rng = random_streams(seed, 2)
    lengths = outputs.sample(len(trace), rng).tolist()
    requests = [
        replace(request, output_tokens=tokens, answer=None)
        for request, tokens in zip(trace, lengths, strict=True)
    ]
    return trace.replaced(requests, f"outputs {shown}, seed {seed}")
