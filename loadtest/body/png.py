"""Writes PNG images (W3C's PNG specification, third edition): RGB, eight bits, no interlace."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_EIGHT_BITS, _RGB, _NO_FILTER = 8, 2, 0


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return the image of ``pixels``, an array of height x width x 3."""
    height, width, _ = pixels.shape
    head = struct.pack("!IIBBBBB", width, height, _EIGHT_BITS, _RGB, 0, 0, 0)
    rows = np.full((height, 1 + 3 * width), _NO_FILTER, np.uint8)
    rows[:, 1:] = pixels.reshape(height, 3 * width)
    data = zlib.compress(rows.tobytes(), level=1)
    return SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
