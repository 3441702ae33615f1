"""Random streams of single requests: what a request draws is its own, whoever sends it.

So it does not matter how many processes share the load, or in which order answers come.
"""

from enum import IntEnum
from zlib import crc32

import numpy as np


class Draws(IntEnum):
    """What is drawn; each has its own streams."""

    CANCELLATION = 1
    BACKOFF = 2


def request_stream(seed: int, draws: Draws, request_id: str) -> np.random.Generator:
    """The stream of one request for one purpose."""
    key = (int(draws), crc32(request_id.encode()))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
