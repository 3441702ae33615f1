"""Counter-based random numbers: each follows from a seed, a position and a token, without a state.

The 64 bits of a row are a hash of (seed, position, stream) in the way of SplitMix64 (Steele, Lea
and Flood, OOPSLA 2014); a token's 32 bits are a hash of its id and these, in the way of
MurmurHash3's finaliser, in integer operations that every device computes alike. So a number
depends on neither the batch nor the device.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from servetwin.engine.models.device import to_device
from servetwin.engine.sampling.sampling_params import WORD
from servetwin.workloads.generators.prompts import mixed

# 2**64 divided by the golden ratio: multiples of it spread evenly.
_GOLDEN = 0x9E3779B97F4A7C15


def row_bits(seeds: Sequence[int], positions: Sequence[int], stream: int = 0) -> NDArray[np.uint64]:
    """Return 64 random bits per row; ``stream`` numbers the uses that one position has of them."""
    seeded = mixed(np.array([seed & WORD for seed in seeds], np.uint64))
    places = np.array(positions, np.uint64) * np.uint64(_GOLDEN)
    return mixed(mixed(seeded + places) + _times(stream))


def uniforms(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return a number in 0 .. 1 - 2**-53 from the bits of each row."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def exponentials(bits: NDArray[np.uint64], vocabulary: int, device: torch.device) -> Tensor:
    """Return float32 [rows, vocabulary], each exponentially distributed with mean 1, and below 0.

    The sign saves a pass over the numbers. Each lies in -16.7 .. -2**-33.
    """
    keys = to_device(bits.view(np.int64), device).view(torch.int32).view(-1, 2)
    x = _token_words(vocabulary, device) + keys[:, :1]
    x ^= (x >> 16) & 0xFFFF
    x *= -2048144789
    x += keys[:, 1:]
    x ^= (x >> 13) & 0x7FFFF
    x *= -1028477387
    x ^= (x >> 16) & 0xFFFF
    shares = x.float().mul_(-(2.0**-32)).sub_(0.5)
    return shares.clamp_(2.0**-24 - 1, -(2.0**-33)).log1p_()


@lru_cache(maxsize=8)
def _token_words(vocabulary: int, device: torch.device) -> Tensor:
    words = torch.arange(vocabulary, device=device) * (_GOLDEN >> 32)
    return words.to(torch.int32)


def _times(number: int) -> np.uint64:
    return np.uint64(number * _GOLDEN & WORD)
