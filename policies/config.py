"""The settings of a server's policies, and the objects that they name."""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from workloads.errors import PolicyError

Reservation = Literal["max", "pow2", "exact"]


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Which policies a server runs, and their limits. Engine and simulator read the same one.

    ``batching`` and ``kv`` are registered names or ``path.py:Class``. ``kv_tokens`` is the whole KV
    memory in tokens; ``max_seqs`` bounds a batch (and sizes a static one); ``token_budget`` bounds
    the rows of a continuous step; ``wait_limit_s`` is how long a static batch waits to fill;
    ``queue_limit`` bounds those who wait (None: unbounded).
    """

    batching: str = "continuous"
    kv: str = "paged"
    reservation: Reservation = "max"
    prefix_cache: bool = False
    kv_tokens: int = 32_768
    block_tokens: int = 16
    max_model_len: int = 2_048
    max_seqs: int = 16
    token_budget: int = 256
    wait_limit_s: float = 0.1
    queue_limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("kv_tokens", "block_tokens", "max_model_len", "max_seqs", "token_budget"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        if self.queue_limit is not None:
            _require(self.queue_limit >= 0, "queue_limit", self.queue_limit, "at least 0")
        waits = math.isfinite(self.wait_limit_s) and self.wait_limit_s >= 0
        _require(waits, "wait_limit_s", self.wait_limit_s, "a finite number, at least 0")
        sizes = get_args(Reservation)
        _require(
            self.reservation in sizes, "reservation", self.reservation, f"one of {', '.join(sizes)}"
        )
        _require(
            self.kv_tokens >= self.block_tokens, "kv_tokens", self.kv_tokens, "at least one block"
        )
        if self.prefix_cache and self.kv == "contiguous":
            raise PolicyError("prefix_cache: contiguous KV memory cannot share; use kv: paged")

    @property
    def name(self) -> str:
        """A short label: ``continuous+paged+prefix``."""
        label = f"{self.batching}+{self.kv}"
        if self.kv == "contiguous" and self.reservation != "max":
            label += f"-{self.reservation}"
        return label + ("+prefix" if self.prefix_cache else "")

    def as_dict(self) -> dict[str, object]:
        """The settings by name, for files."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _require(holds: bool, name: str, value: object, right: str) -> None:
    if not holds:
        raise PolicyError(f"{name}: {value!r} is not possible; it must be {right}")
