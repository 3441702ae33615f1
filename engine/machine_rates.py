"""The rates of this CPU: reading memory, multiplying, calling an operator, messages."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

from servetwin.engine.core.step_input import StepInput
from servetwin.engine.core.step_isolation import BlockCopies
from servetwin.engine.formats.weight_formats import quantised_product
from servetwin.engine.parallel.parallel_runner import Followers
from servetwin.engine.parallel.tensor_rank import TensorRank

_BYTES = 1 << 28
"""More than caches hold."""
_SIDE = 1024
_REPEATS = 9
_OPERATORS = 2000


@dataclass(frozen=True, slots=True)
class MachineRates:
    """FLOP/s by format, bytes/s, seconds of a call.

    Floating point as torch multiplies; int8 as the engine does, rows rounded on the way.
    """

    flops_per_s: dict[str, float]
    read_bytes_per_s: float
    operator_s: float


def machine_rates(threads: int = 1) -> MachineRates:
    """Measure with so many threads of torch; takes some seconds."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        memory, small = torch.ones(_BYTES // 4), torch.ones(16)
        return MachineRates(
            _matrix_rates(),
            _BYTES / _seconds(lambda: memory.sum()),
            _seconds(lambda: [small.add(small) for _ in range(_OPERATORS)]) / _OPERATORS,
        )
    finally:
        torch.set_num_threads(before)


def _matrix_rates() -> dict[str, float]:
    work = 2 * _SIDE**3
    found = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        matrix = torch.ones(_SIDE, _SIDE, dtype=dtype)
        found[name] = work / _seconds(lambda matrix=matrix: matrix @ matrix)  # type: ignore[misc]
    rows = torch.ones(_SIDE, _SIDE)
    product = quantised_product("w8a8", rows, group=1, prepack=True)
    return found | {"int8": work / _seconds(lambda: product(rows))}


def _seconds(work: Callable[[], object]) -> float:
    """Return the shortest time of some repetitions: other programs can only lengthen it."""
    work()
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


_SMALL, _LARGE = 512, 1 << 18
"""Floats of a message."""
_WIDTH = 512
_ROUNDS, _SUMS = 8, 25


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Of a sum over two processes: seconds of the smallest one, and bytes/s beyond it."""

    latency_s: float
    bytes_per_s: float


def link_rates() -> LinkRates:
    """Measure sums between products, as a model has them; starts a process for some seconds."""
    followers = Followers(_Summing, 2, "cpu")
    try:
        small_s, large_s = (_sum_s(followers, floats) for floats in (_SMALL, _LARGE))
    finally:
        followers.close()
    bytes_per_s = 4 * (_LARGE - _SMALL) / max(large_s - small_s, 1e-9)
    return LinkRates(small_s, bytes_per_s)


class _Summing:
    """A rank that takes part in sums of as many floats as a step has rows."""

    def __init__(self, *, rank: TensorRank | None = None) -> None:
        del rank
        torch.set_num_threads(1)

    def compute(self, step: StepInput) -> Tensor:
        """Take part in the sums of ``_sum_s``."""
        _sums(step.decodes)
        return torch.empty(0)

    def copy_blocks(self, copies: BlockCopies) -> None:
        """Do nothing: there are no blocks."""


def _sum_s(followers: Followers, floats: int) -> float:
    """Return the seconds of one sum, without the product before it: the median of some times.

    Not the shortest: a sum waits for the later process each time, and a step pays for that.
    """
    times = []
    for _ in range(_ROUNDS):
        followers.send(StepInput([], [], [], [], floats))
        times.append(_sums(floats) - _products())
    return max(median(times), 0.0) / _SUMS


def _sums(floats: int) -> float:
    """Return the seconds of products, each with a sum behind it."""
    message, row, weight = torch.ones(floats), torch.ones(1, _WIDTH), torch.ones(_WIDTH, _WIDTH)
    dist.barrier()
    began_s = time.perf_counter()
    for _ in range(_SUMS):
        torch.mm(row, weight)
        dist.all_reduce(message)
    return time.perf_counter() - began_s


def _products() -> float:
    row, weight = torch.ones(1, _WIDTH), torch.ones(_WIDTH, _WIDTH)
    began_s = time.perf_counter()
    for _ in range(_SUMS):
        torch.mm(row, weight)
    return time.perf_counter() - began_s
