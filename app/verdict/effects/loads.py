"""The loads under which the effect of a technique is predicted and measured: closed or all at once.

Neither depends on a rate, so the slower side is not driven into a queue that the other never has.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from servetwin.sim.experiments.capacity import all_at_once
from servetwin.sim.techniques.technique import Experiment
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

SMALLER = 4
"""Tokens of the experiments are made for a GPU; a CPU gets one part in so many."""
_ALONE, _SATURATED = 12, 32


@dataclass(frozen=True, slots=True)
class EffectLoads:
    """``alone``: one request after the other on an idle server. ``saturated``: all at once."""

    alone: Trace
    saturated: Trace

    @classmethod
    def of(cls, trace: Trace) -> "EffectLoads":
        """Return both loads of the requests of a trace; few of them are sent alone."""
        requests = [replace(r, parent_id=None, delay_s=None) for r in trace]
        return cls(_one_after_the_other(requests[:_ALONE]), all_at_once(Trace(tuple(requests), "")))

    @classmethod
    def of_experiment(cls, experiment: Experiment, seed: int, longest_tokens: int) -> "EffectLoads":
        """Return the loads of the experiment of a technique, with requests short enough for a CPU.

        No request is longer than ``longest_tokens``. Raises ``LoadTestError`` for an experiment
        that a load test cannot send.
        """
        if experiment.samples > 1:
            raise LoadTestError(
                f"it changes requests of which several answers are wanted ({experiment.samples} in "
                "its experiment), and a load test asks for one each"
            )
        smaller = replace(
            experiment,
            prompt_tokens=max(8, experiment.prompt_tokens // SMALLER),
            output_tokens=max(8, min(32, experiment.output_tokens // SMALLER)),
            shared_tokens=experiment.shared_tokens // SMALLER,
            longest_tokens=min(experiment.longest_tokens, longest_tokens) // 2,
            saturated=_SATURATED,
        )
        return cls.of(smaller.all_at_once(seed))


def _one_after_the_other(requests: Iterable[Request]) -> Trace:
    chain: list[Request] = []
    for request in requests:
        parent = chain[-1].request_id if chain else None
        delay_s = None if parent is None else 0.0
        chain.append(replace(request, arrival_s=0.0, parent_id=parent, delay_s=delay_s))
    return Trace(tuple(chain), "one after the other")
