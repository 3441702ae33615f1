"""The writer of images, read back by the rules of the format."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from servetwin.loadtest.body.png import SIGNATURE, png


def read_back(data: bytes) -> NDArray[np.uint8]:
    """The pixels, after the checks that every reader makes."""
    assert data.startswith(SIGNATURE)
    at, chunks = len(SIGNATURE), list[tuple[bytes, bytes]]()
    while at < len(data):
        (length,) = struct.unpack_from("!I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack_from("!I", data, at + 8 + length)
        assert checksum == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + length
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *form = struct.unpack("!IIBBBBB", chunks[0][1])
    assert form == [8, 2, 0, 0, 0]
    rows = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 9))
def test_pixels_come_back(width: int, height: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    assert (read_back(png(pixels)) == pixels).all()


def test_another_reader_agrees() -> None:
    image = pytest.importorskip("PIL.Image")
    from io import BytesIO

    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    assert (np.asarray(image.open(BytesIO(png(pixels)))) == pixels).all()
