"""The bundled sample trace: small enough to serve on a laptop, with bursts and shared prefixes."""

from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path

from workloads.generators.arrivals import GammaArrivals
from workloads.generators.generate import WorkloadSpec
from workloads.generators.lengths import IndependentLengths, LognormalTokens
from workloads.generators.prefixes import PrefixGroups
from workloads.reading import read_trace
from workloads.trace import Trace

SAMPLE_SPEC = WorkloadSpec(
    requests=240,
    arrivals=GammaArrivals(rate_per_s=4.0, cv=1.2),
    lengths=IndependentLengths(
        prompt=LognormalTokens.from_mean(128, 0.8, max_tokens=512),
        output=LognormalTokens.from_mean(24, 0.6, max_tokens=96),
    ),
    prefixes=PrefixGroups(groups=8, prefix_tokens=64, zipf=1.0),
)
SAMPLE_SEED = 1


def sample_path() -> AbstractContextManager[Path]:
    """Yield the path of the bundled trace, valid inside the block."""
    return as_file(files("workloads") / "scenarios" / "sample.jsonl")


def sample_trace() -> Trace:
    """Return the bundled trace, which ``generate(SAMPLE_SPEC, SAMPLE_SEED)`` made."""
    with sample_path() as path:
        return read_trace(path)
