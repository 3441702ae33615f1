"""The settings of a server's policies, and the objects that they name."""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from workloads.errors import PolicyError, did_you_mean

Reservation = Literal["max", "pow2", "exact"]
PrefixIndex = Literal["hash", "radix"]
Eviction = Literal["lru", "lfu", "fifo"]
QueueOrder = Literal["fcfs", "sjf", "priority", "edf", "longest-prefix", "fair"]
Admission = Literal["prompt", "full"]
Preemption = Literal["recompute", "swap"]
Victim = Literal["newest", "lowest-priority", "least-progress"]

_CHOICES = {
    "reservation": get_args(Reservation),
    "prefix_index": get_args(PrefixIndex),
    "eviction": get_args(Eviction),
    "queue_order": get_args(QueueOrder),
    "admission": get_args(Admission),
    "preemption": get_args(Preemption),
    "victim": get_args(Victim),
}
_COUNTS = ("kv_tokens", "block_tokens", "max_model_len", "max_seqs", "token_budget")
UNBUDGETED = ("static", "insertion")
"""Schedulers whose steps are not bounded by ``token_budget``."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Which policies a server runs, and their limits. Engine and simulator read the same one.

    ``batching`` and ``kv`` are registered names or ``path.py:Class``.

    Memory: ``kv_tokens`` is the whole KV memory in tokens, in blocks of ``block_tokens`` (paged)
    or regions sized by ``reservation`` (contiguous). ``prefix_cache`` shares equal prompt blocks,
    found by ``prefix_index`` and given up in the order of ``eviction``; ``host_cache_tokens`` of
    host memory keep prompts beyond that, ``host_kv_tokens`` what preemption swaps out.

    Steps: ``max_seqs`` bounds a batch (and sizes a static one), ``token_budget`` the rows of a
    step; ``wait_limit_s`` is how long a static batch waits to fill.

    Queue: ``queue_order``; ``queue_limit`` bounds those who wait (None: unbounded);
    ``shed_ttft_s`` gives up requests that waited longer than the TTFT they were promised.
    ``admission`` reserves the prompt, or the full length; ``watermark`` is the share of the memory
    that admission leaves free. ``preemption`` frees memory by forgetting a ``victim`` (recomputed
    later) or by swapping it to the host.

    Models whose memory does not grow with every token (``kv: windowed``): a sequence of l tokens
    holds ``kv_state_tokens`` + (1 - share) l + share min(l, ``kv_window_tokens``), where share is
    ``kv_window_share``, the part of a token's keys and values that lies in windowed layers.
    ``draft_rows`` (``batching: speculative``) are the rows that a decode verifies beside its own.
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
    prefix_index: PrefixIndex = "radix"
    eviction: Eviction = "lru"
    queue_order: QueueOrder = "fcfs"
    admission: Admission = "prompt"
    watermark: float = 0.0
    shed_ttft_s: float | None = None
    preemption: Preemption = "recompute"
    victim: Victim = "newest"
    host_kv_tokens: int = 0
    host_cache_tokens: int = 0
    kv_window_tokens: int | None = None
    kv_window_share: float = 1.0
    kv_state_tokens: int = 0
    draft_rows: int = 0

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name, choices in _CHOICES.items():
            _require_known(name, getattr(self, name), choices)
        if self.queue_limit is not None:
            _require(self.queue_limit >= 0, "queue_limit", self.queue_limit, "at least 0")
        for name in ("host_kv_tokens", "host_cache_tokens"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        _require_seconds("wait_limit_s", self.wait_limit_s)
        if self.shed_ttft_s is not None:
            _require_seconds("shed_ttft_s", self.shed_ttft_s)
        _require(0 <= self.watermark < 1, "watermark", self.watermark, "at least 0 and below 1")
        if self.kv_window_tokens is not None:
            _require(
                self.kv_window_tokens >= 1, "kv_window_tokens", self.kv_window_tokens, "at least 1"
            )
        _require(
            0 <= self.kv_window_share <= 1, "kv_window_share", self.kv_window_share, "from 0 to 1"
        )
        for name in ("kv_state_tokens", "draft_rows"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        self._require_room()
        if self.prefix_cache and self.kv == "contiguous":
            raise PolicyError("prefix_cache: contiguous KV memory cannot share; use kv: paged")
        if self.prefix_cache and self.kv == "windowed":
            raise PolicyError(
                "prefix_cache: windowed KV memory forgets what others would share; use kv: paged"
            )
        if self.host_cache_tokens and not self.prefix_cache:
            raise PolicyError("host_cache_tokens: a tier of the prefix cache; set prefix_cache")

    def _require_room(self) -> None:
        _require(
            self.kv_tokens >= self.block_tokens, "kv_tokens", self.kv_tokens, "at least one block"
        )
        if self.batching not in UNBUDGETED:
            right = f"at least max_seqs ({self.max_seqs}): a step feeds every running sequence"
            rows = self.max_seqs
            if self.batching == "speculative" and self.draft_rows:
                rows *= 1 + self.draft_rows
                right = (
                    f"at least {rows} (max_seqs {self.max_seqs} x {1 + self.draft_rows} rows): a "
                    f"step verifies {self.draft_rows} drafts of every running sequence"
                )
            _require(self.token_budget >= rows, "token_budget", self.token_budget, right)

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


def _require_seconds(name: str, value: float) -> None:
    holds = math.isfinite(value) and value >= 0
    _require(holds, name, value, "a finite number, at least 0")


def _require_known(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        hint = did_you_mean(value, choices, f"it must be one of {', '.join(choices)}")
        raise PolicyError(f"{name}: {value!r} is not possible; {hint}")
