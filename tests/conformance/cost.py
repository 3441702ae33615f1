"""What decisions cost: steps, TTFT and TPOT, in the step times of one profile."""

from bisect import bisect_left
from itertools import accumulate
from statistics import fmean
from typing import NamedTuple

from servetwin.policies.batch import shape_of
from servetwin.sim.step_times.profile import load_profile
from tests.conformance.workload import Step, Workload
from tests.support.paths import SHEET_PROFILE

PROFILE = SHEET_PROFILE


class Cost(NamedTuple):
    """What a server does for a workload."""

    steps: int
    ttft_ms: float
    """Mean over the requests that finish."""
    tpot_ms: float
    """Mean over the requests that finish with more than a token; 0 if there are none."""

    def beside(self, other: "Cost") -> str:
        """Return by how many per cent ``other`` is above this one, in the order of the fields."""
        pairs = zip(self, other, strict=True)
        return ", ".join(f"{100 * (b / a - 1) if a else 0:+.1f} %" for a, b in pairs)


def cost(workload: Workload, steps: list[Step]) -> Cost:
    """Return what the decisions of a scheduler cost; steps without rows take no time."""
    model = load_profile(PROFILE).layouts["paged"].model()
    shapes = [shape_of((e[0], e[1], 0) for e in step.scheduled.values()) for step in steps]
    ends_s = list(accumulate([float(model.seconds(shape)[0]) for shape in shapes], initial=0.0))
    numbers = [step.number for step in steps]
    prompts = {asked.name: len(asked.prompt) for asked in workload.requests}
    first_s: dict[str, float] = {}
    ended: dict[str, tuple[int, float]] = {}
    for step, end_s in zip(steps, ends_s[1:], strict=True):
        for name, (start, rows) in step.scheduled.items():
            request = name.partition("#")[0]
            if start + rows >= prompts[request]:
                first_s.setdefault(request, end_s)
        ended.update(dict.fromkeys(step.finished, (step.number, end_s)))
    ttft, tpot = list[float](), list[float]()
    for asked in workload.requests:
        if asked.name in ended:
            begin = asked.arrival_step
            if asked.parent is not None:
                begin += 1 + ended[asked.parent][0]
            ttft.append(first_s[asked.name] - ends_s[bisect_left(numbers, begin)])
            if len(asked.answer) > 1:
                decoding_s = ended[asked.name][1] - first_s[asked.name]
                tpot.append(decoding_s / (len(asked.answer) - 1))
    return Cost(len(steps), 1e3 * fmean(ttft or [0.0]), 1e3 * fmean(tpot or [0.0]))
