"""What a file of prompts does not say: when they arrive, and how long the answers shall be."""

from dataclasses import replace

from servetwin.workloads.generators.arrivals import PoissonArrivals
from servetwin.workloads.generators.generate import arrival_times_s, random_streams
from servetwin.workloads.generators.lengths import TokenLaw
from servetwin.workloads.readers.prompt_records import NO_TIMES
from servetwin.workloads.trace import Trace


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
