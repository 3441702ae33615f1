"""The rates of this CPU: reading memory, multiplying, calling an operator, messages."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import Tensor

from servetwin.engine.core.step_input import StepInput
from servetwin.engine.formats.weight_formats import quantised_product
from servetwin.engine.parallel.parallel_runner import Followers
from servetwin.engine.parallel.tensor_rank import TensorRank

# More than caches hold.
_BYTES = 1 << 28
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
    """Measure with ``threads`` threads of torch; takes some seconds."""
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
    rates = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        matrix = torch.ones(_SIDE, _SIDE, dtype=dtype)
        rates[name] = work / _seconds(lambda matrix=matrix: matrix @ matrix)  # type: ignore[misc]
    rows = torch.ones(_SIDE, _SIDE)
    product = quantised_product("w8a8", rows, group=1, prepack=True)
    return rates | {"int8": work / _seconds(lambda: product(rows))}


def _seconds(work: Callable[[], object]) -> float:
    """Return the shortest time of some repetitions: other programs can only lengthen it."""
    work()
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


# Floats of a message.
_SMALL, _LARGE = 512, 1 << 18
_WIDTH = 512
_TURNS, _SUMS = 8, 25
# No sum of ``_LARGE`` between processes is shorter.
_LEAST_S = 1e-5


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Seconds of the smallest sum over two processes, and bytes/s beyond it.

    The seconds are a median: a sum waits for the later process each time, and a step pays for that.
    """

    latency_s: float
    bytes_per_s: float


def link_rates() -> LinkRates:
    """Measure sums between products, as a model has them; starts a process for some seconds."""
    followers = Followers(_summing, 2, "cpu")
    try:
        turns = [[_sum_s(followers, floats) for floats in (_SMALL, _LARGE)] for _ in range(_TURNS)]
    finally:
        followers.close()
    small_s, large_s = (sorted(times) for times in zip(*turns, strict=True))
    return LinkRates(max(median(small_s), 0.0), _bytes_per_s(small_s[0], large_s[0]))


def _bytes_per_s(small_s: float, large_s: float) -> float:
    """Return the rate by the shortest sums, or the least it can be where those say nothing."""
    if 0 < small_s < large_s:
        return 4 * (_LARGE - _SMALL) / (large_s - small_s)
    return 4 * _LARGE / max(large_s, small_s, _LEAST_S)


def _summing(*, rank: TensorRank) -> SimpleNamespace:
    """Return a rank that takes part in sums of as many floats as a step has rows."""
    del rank
    torch.set_num_threads(1)
    return SimpleNamespace(compute=lambda step: _products(torch.ones(step.decodes)))


def _sum_s(followers: Followers, floats: int) -> float:
    """Return the seconds of one sum, without the product before it."""
    followers.send(StepInput([], [], [], [], floats))
    return (_products(torch.ones(floats)) - _products(None)) / _SUMS


def _products(message: Tensor | None) -> float:
    """Return the seconds of products, each with a sum of ``message`` behind it."""
    row, weight = torch.ones(1, _WIDTH), torch.ones(_WIDTH, _WIDTH)
    if message is not None:
        dist.barrier()
    began_s = time.perf_counter()
    for _ in range(_SUMS):
        torch.mm(row, weight)
        if message is not None:
            dist.all_reduce(message)
    return time.perf_counter() - began_s
