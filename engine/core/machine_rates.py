"""The rates that this CPU reaches: reading memory, multiplying, calling an operator."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from servetwin.engine.formats.weight_formats import quantised_product

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
