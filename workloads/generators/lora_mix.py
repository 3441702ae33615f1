"""A mix of models: which share of the requests asks for which LoRA module."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.program.key_values import key_values, share_in
from servetwin.workloads.trace import Trace

_FORM = "NAME=SHARE; write for example sql=0.3,chat=0.2, the rest is for the base model"
_ROUNDING = 1e-9
# How the note of a trace with a mix begins.
LORA_NOTE = "LoRA modules: "


@dataclass(frozen=True, slots=True)
class LoraMix:
    """The share of the requests of each module; the rest is for the base model."""

    shares: Mapping[str, float]
    seed: int = 0

    def module(self, request_id: str) -> str | None:
        """Return the module of a request, the same in simulator and load tester; None: the base."""
        draw = Random(f"{self.seed}/{request_id}").random()
        names = [*self.shares, None]
        return names[bisect_right(list(accumulate(self.shares.values())), draw)]

    def over(self, trace: Trace) -> Trace:
        """Return the trace whose requests ask for their modules."""
        models = [self.module(request.request_id) for request in trace]
        shares = ", ".join(f"{name} {share:.3g}" for name, share in self.shares.items())
        return trace.changed(f"{LORA_NOTE}{shares}", model=models)


def parse_lora_mix(text: str, seed: int) -> LoraMix:
    """Read ``NAME=SHARE,...``. Raises ``LoadTestError`` naming the part that is wrong."""
    shares = {
        name: _share(name, share)
        for name, share in key_values(text, "--lora-modules", LoadTestError, _FORM).items()
    }
    total = sum(shares.values())
    if not shares or total > 1 + _ROUNDING:
        wrong = f"the shares add up to {total:g}, more than 1" if shares else "no module"
        raise LoadTestError(f"--lora-modules {text!r}: {wrong}; {_FORM}")
    return LoraMix(shares, seed)


def _share(name: str, text: str) -> float:
    share = share_in(text)
    if not 0 < share <= 1 + _ROUNDING:
        raise LoadTestError(f"--lora-modules: {name}={text}: not a share above 0 and at most 1")
    return share
