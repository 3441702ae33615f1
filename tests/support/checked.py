"""Shipped policies under supervision, and requests in one line."""

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.invariants import InvariantChecked
from servetwin.workloads.request import Request


class CheckedScheduler(InvariantChecked):
    """The scheduler of a configuration; every invariant is checked around every call."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(build_scheduler(config), config, every_call=True)


def request(
    name: str, arrival_s: float = 0.0, prompt: int = 4, output: int = 2, ids: tuple[int, ...] = ()
) -> Request:
    """A request in one line; ``ids`` name blocks of four tokens."""
    return Request(name, arrival_s, prompt, output, ids, 4 if ids else None)
