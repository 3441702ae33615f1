"""To how many rows products of one or two pad them: the fastest here, by measurement."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import islice

import torch

from servetwin.engine.models.linear import Linear

PADDINGS = (1, 2, 4)
PROBED_BYTES = 1 << 27
"""Read for each padding: more than caches hold, in about 5 ms."""
_WORTH = 0.9
"""More rows must take a smaller share of the time than this, or fewer are taken."""

Clock = Callable[[], float]
_Shape = tuple[int, ...]


@torch.inference_mode()
def choose_paddings(
    products: list[Linear], dtype: torch.dtype, clock: Clock = time.perf_counter
) -> None:
    """Give products of each shape their fastest padding for a row.

    Every layer is timed once with each padding, in an order that spreads what else the machine
    does over all of them; the fastest layer counts. Shapes that occur only once or twice do as the
    one that weighs most. A model that caches hold keeps its paddings.
    """
    probed = list(_first(products, dtype.itemsize))
    if sum(product.shape.numel() for product in probed) * dtype.itemsize < PROBED_BYTES // 8:
        return
    fastest: dict[tuple[_Shape, int], float] = defaultdict(lambda: float("inf"))
    for turn in range(len(PADDINGS)):
        for place, product in enumerate(probed):
            product.padding = PADDINGS[(turn + place) % len(PADDINGS)]
            row = torch.zeros(1, product.shape[1], dtype=dtype)
            began_s = clock()
            product(row)
            key = (tuple(product.shape), product.padding)
            fastest[key] = min(fastest[key], clock() - began_s)
    chosen = _chosen(probed, fastest)
    heaviest = max(chosen, key=lambda shape: shape[0] * shape[1])
    for product in products:
        product.padding = chosen.get(tuple(product.shape), chosen[heaviest])


def _first(products: list[Linear], item_bytes: int) -> Iterable[Linear]:
    """Yield products of layers until they have enough bytes; none that occurs once or twice."""
    counts = Counter(product.shape for product in products)
    taken_bytes = 0
    for product in products:
        if counts[product.shape] > 2 and taken_bytes < PROBED_BYTES:
            taken_bytes += product.shape.numel() * item_bytes
            yield product


def _chosen(probed: list[Linear], seconds: dict[tuple[_Shape, int], float]) -> dict[_Shape, int]:
    """Return the padding of each shape: fewer rows where more are not clearly faster."""
    chosen = {}
    for shape in {tuple(product.shape) for product in probed}:
        best = PADDINGS[0]
        for padding in islice(PADDINGS, 1, None):
            if seconds[shape, padding] < _WORTH * seconds[shape, best]:
                best = padding
        chosen[shape] = best
    return chosen
