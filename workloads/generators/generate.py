"""Seeded synthetic traces of independent requests, and what all generators have in common."""

from dataclasses import dataclass

import numpy as np

from workloads.errors import TraceError
from workloads.generators.arrivals import ArrivalProcess, FloatArray
from workloads.generators.lengths import IntArray, LengthDistribution
from workloads.generators.prefixes import PrefixStructure
from workloads.request import Request
from workloads.trace import Trace

SOURCE = "generated"
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
        if self.requests < 1:
            raise TraceError(f"a trace has at least 1 request, not {self.requests}")


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
    return Trace(requests, SOURCE, notes=(f"{spec}, seed {seed}",))


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
    """Return ``count`` arrivals in seconds, to the microsecond, the first at 0."""
    return np.concatenate([[0.0], np.cumsum(process.gaps_s(count - 1, rng))]).round(6)
