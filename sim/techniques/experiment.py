"""The loads under which a technique is judged: one request at a time, a steady stream, all at once.

The same requests go to both sides, seed by seed (common random numbers).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from servetwin.workloads.generators.arrivals import PoissonArrivals
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.lengths import IndependentLengths, LognormalTokens
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate

_APART_S = 1e5
_PREFIX_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Experiment:
    """Log-normal lengths of these means, and how many requests meet each load.

    ``alone``: one after the other, each on an idle server. ``loaded``: Poisson arrivals at
    ``load`` of what the server without the technique can sustain. ``saturated``: all at once.
    The first ``shared_tokens`` of all prompts are the same; ``samples`` answers are wanted to each.
    """

    prompt_tokens: int = 512
    output_tokens: int = 128
    spread: float = 0.4
    longest_tokens: int = 2048
    load: float = 0.7
    alone: int = 8
    loaded: int = 120
    saturated: int = 240
    shared_tokens: int = 0
    samples: int = 1

    def describe(self) -> str:
        """Describe the experiment for the caption of a table."""
        shared = f", {self.shared_tokens} of them the same in all" if self.shared_tokens else ""
        samples = f", {self.samples} answers to each" if self.samples > 1 else ""
        return (
            f"prompts of {self.prompt_tokens} tokens{shared} and answers of {self.output_tokens} "
            f"(means, log-normal, CV {self.spread:g}){samples}; load {self.load:.0%} of what the "
            "server without the technique sustains"
        )

    def one_at_a_time(self, seed: int) -> Trace:
        """Return requests so far apart that none meets another."""
        requests = self._requests(self.alone, seed)
        return _trace(
            replace(request, arrival_s=place * _APART_S) for place, request in enumerate(requests)
        )

    def all_at_once(self, seed: int) -> Trace:
        """Return all requests, each at second 0."""
        return _trace(replace(r, arrival_s=0.0) for r in self._requests(self.saturated, seed))

    def steady(self, seed: int, sustained_per_s: float) -> Trace:
        """Return a Poisson stream at ``load`` of ``sustained_per_s``."""
        return at_rate(_trace(self._requests(self.loaded, seed)), self.load * sustained_per_s)

    def _requests(self, count: int, seed: int) -> list[Request]:
        prompts, outputs = self._tokens(self.prompt_tokens), self._tokens(self.output_tokens)
        lengths = IndependentLengths(prompts, outputs)
        trace = generate(WorkloadSpec(count, PoissonArrivals(1.0), lengths), seed)
        return [self._shaped(request) for request in trace]

    def _tokens(self, mean: int) -> LognormalTokens:
        return LognormalTokens.from_mean(mean, self.spread, max_tokens=self.longest_tokens)

    def _shaped(self, request: Request) -> Request:
        blocks = self.shared_tokens // _PREFIX_BLOCK_TOKENS
        if not blocks:
            return replace(request, samples=self.samples)
        return replace(
            request,
            samples=self.samples,
            prompt_tokens=self.shared_tokens + request.prompt_tokens,
            prefix_block_ids=tuple(range(blocks)),
            block_tokens=_PREFIX_BLOCK_TOKENS,
        )


def _trace(requests: Iterable[Request]) -> Trace:
    return Trace(tuple(requests), "experiment")


LONG_PROMPTS = Experiment(3000, 128, longest_tokens=3900, loaded=60, saturated=60)
"""Contexts long enough for what depends on them to show."""
