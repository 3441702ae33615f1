"""How much an answer depends on the link between devices, which few know."""

from collections.abc import Callable

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.step_times.step_time import StepTime

_DECODES, _CONTEXT, _PROMPT = 64, 1024, 2048
_SHAPES = {
    f"TPOT of {_DECODES} decodes": BatchShape(
        _DECODES, _DECODES * _CONTEXT, _DECODES, (), 0, 0, (_CONTEXT,) * _DECODES, _CONTEXT
    ),
    f"TTFT of a prompt of {_PROMPT:,}": BatchShape(0, 0, 0, ((0, _PROMPT),)),
}


def link_lines(link: Link, step_time: Callable[[Link], StepTime]) -> list[str]:
    """Return the link, and what half of its bandwidth would change."""
    steps, slowed = step_time(link), step_time(link.slowed(2))
    changes = [
        f"{name} {slowed.seconds(shape)[0] / steps.seconds(shape)[0] - 1:+.1%}"
        for name, shape in _SHAPES.items()
    ]
    return [str(link), f"  at half the bandwidth: {', '.join(changes)}".replace("%", " %")]
