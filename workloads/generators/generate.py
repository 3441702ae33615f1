"""Seeded synthetic traces of independent requests, and what generators share."""

from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from servetwin.workloads.errors import TraceError, require_name
from servetwin.workloads.fields import MAX_SECONDS
from servetwin.workloads.generators.arrivals import (
    ArrivalProcess,
    FloatArray,
    PoissonArrivals,
    describe,
)
from servetwin.workloads.generators.lengths import LengthDistribution, TokenLaw
from servetwin.workloads.generators.prefixes import PrefixGroups
from servetwin.workloads.program.package import shipped_json
from servetwin.workloads.readers.prompt_records import NO_TIMES
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Requests, Trace

SOURCE = "generated"
# A trace is held in memory, about 100 bytes a request and what it has beside its lengths.
MOST_REQUESTS = 10_000_000
FOLLOWERS_NOTE = (
    "requests with a parent arrive delay_s after its arrival, the earliest they can: meant for"
    " closed-loop replay, where they arrive delay_s after its answer"
)


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """How many requests, when they come (None: all at once), how long they are, what they share."""

    requests: int
    arrivals: ArrivalProcess | None
    lengths: LengthDistribution
    prefixes: PrefixGroups | None = None

    def __post_init__(self) -> None:
        require_possible(self.requests)

    def describe(self) -> str:
        """Return all of it, as a note of the trace."""
        parts = filter(None, [self.arrivals, self.lengths, self.prefixes])
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
    prefixes = spec.prefixes
    columns = {"arrival_s": arrivals_s, "prompt_tokens": prompts, "output_tokens": outputs}
    names = [f"{SOURCE}:{row}" for row in range(1, spec.requests + 1)]
    requests = Requests({"request_id": names, **columns})
    if prefixes:
        requests = requests.with_columns(
            prefix_block_ids=prefixes.block_ids(prompts, prefixes_rng),
            block_tokens=repeat(prefixes.block_tokens),
        )
    return Trace(requests, SOURCE, notes=(f"{spec.describe()}; seed {seed}",))


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


def arrival_times_s(
    process: ArrivalProcess | None, count: int, rng: np.random.Generator
) -> FloatArray:
    """Return ``count`` arrivals in seconds, to the microsecond, the first at 0.

    Raises ``TraceError`` where they take longer than a trace may.
    """
    if process is None:
        return np.zeros(count)
    times_s = np.concatenate([[0.0], np.cumsum(process.gaps_s(count - 1, rng))]).round(6)
    require_short(count, times_s[-1])
    return times_s


def require_short(count: int, last_s: float) -> None:
    """Raise ``TraceError`` where arrivals take longer than a trace may."""
    if not last_s <= MAX_SECONDS:
        lasts = f"{count:,} arrivals would take {last_s:.3g} s"
        raise TraceError(f"--rate: {lasts}; a trace lasts at most {MAX_SECONDS:.3g} s")


def with_arrivals(trace: Trace, rate_per_s: float, seed: int) -> Trace:
    """Return a trace without times as a Poisson process of this rate; the order stays."""
    (rng,) = random_streams(seed, 1)
    times_s = arrival_times_s(PoissonArrivals(rate_per_s), len(trace), rng)
    notes = tuple(note for note in trace.notes if note != NO_TIMES)
    note = f"no arrival times in the file: a Poisson process of {rate_per_s:g}/s (seed {seed})"
    return replace(trace, notes=notes, timed=True).changed(note, arrival_s=times_s)


def with_output_lengths(trace: Trace, outputs: TokenLaw, shown: str, seed: int) -> Trace:
    """Return the trace with other output lengths, drawn from ``outputs``; answers count no more."""
    _, rng = random_streams(seed, 2)
    lengths = outputs.sample(len(trace), rng)
    note = f"outputs {shown}, seed {seed}"
    return trace.changed(note, output_tokens=lengths, answer=repeat(None))


# Shares of reasoning in the outputs of public traces: equidistant quantiles, and their source.
REASONING: dict[str, dict[str, Any]] = shipped_json("workloads/generators/reasoning.json")


def with_reasoning(trace: Trace, name: str, seed: int) -> Trace:
    """Return the trace with a part of each output as reasoning, drawn as in one of ``REASONING``.

    Raises ``TraceError`` for an unknown name.
    """
    others = f"there is {', '.join(REASONING)}"
    require_name(name, REASONING, "--reasoning: unknown", TraceError, others)
    quantiles = REASONING[name]["quantiles"]
    *_, rng = random_streams(seed, 7)
    shares = np.interp(rng.random(len(trace)), np.linspace(0, 1, len(quantiles)), quantiles)
    hidden = (shares * trace.column("output_tokens")).round().astype(int)
    return trace.changed(f"{REASONING[name]['source']} (seed {seed})", reasoning_tokens=hidden)
