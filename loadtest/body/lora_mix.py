"""A mix of LoRA modules: which model each request is for, drawn by the seed and its id."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from random import Random

from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.key_values import key_values

_FORM = "NAME=SHARE; write for example sql=0.3,chat=0.2, the rest is for the base model"
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class LoraMix:
    """The share of the requests of each module; the rest is for the base model."""

    shares: Mapping[str, float]
    seed: int = 0

    def model(self, request_id: str, base: str) -> str:
        """Return the model of a request, the same in every process."""
        drawn = Random(f"{self.seed}/{request_id}").random()
        names = [*self.shares, base]
        return names[bisect_right(list(accumulate(self.shares.values())), drawn)]


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
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not (isfinite(share) and 0 < share <= 1 + _ROUNDING):
        raise LoadTestError(f"--lora-modules: {name}={text}: not a share above 0 and at most 1")
    return share
