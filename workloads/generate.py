"""Seeded synthetic traces."""

from dataclasses import dataclass

import numpy as np

from workloads.arrivals import ArrivalProcess
from workloads.errors import TraceError
from workloads.lengths import LengthLaw
from workloads.prefixes import PrefixGroups
from workloads.request import Request
from workloads.trace import Trace

SOURCE = "generated"


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """How many requests, when they come, how long they are and what they share."""

    requests: int
    arrivals: ArrivalProcess
    lengths: LengthLaw
    prefixes: PrefixGroups | None = None

    def __post_init__(self) -> None:
        if self.requests < 1:
            raise TraceError(f"a trace has at least 1 request, not {self.requests}")


def generate(spec: WorkloadSpec, seed: int) -> Trace:
    """The trace of a specification; the same seed gives the same trace.

    Arrivals (to the microsecond), lengths and prefixes each have their own random stream, so
    changing one law leaves what the others drew. Raises TraceError for a negative seed.
    """
    if seed < 0:
        raise TraceError(f"a seed must be 0 or positive, not {seed}")
    streams = np.random.SeedSequence(seed).spawn(3)
    arrivals_rng, lengths_rng, prefixes_rng = map(np.random.default_rng, streams)
    gaps_s = spec.arrivals.gaps_s(spec.requests - 1, arrivals_rng)
    arrivals_s = np.concatenate([[0.0], np.cumsum(gaps_s)]).round(6)
    prompts, outputs = spec.lengths.sample(spec.requests, lengths_rng)
    ids: list[tuple[int, ...]] = [()] * spec.requests
    if spec.prefixes:
        ids = spec.prefixes.block_ids(prompts, prefixes_rng)
    rows = zip(arrivals_s.tolist(), prompts.tolist(), outputs.tolist(), ids, strict=True)
    block_tokens = spec.prefixes.block_tokens if spec.prefixes else None
    requests = tuple(
        Request(f"{SOURCE}:{row}", *fields, block_tokens=block_tokens)
        for row, fields in enumerate(rows, 1)
    )
    return Trace(requests, SOURCE, notes=(f"{spec}, seed {seed}",))
