"""Images in chat messages: generated ones, different in every request, or one at a URL."""

import base64
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servetwin.workloads.errors import LoadTestError

# Pixels of a side.
LARGEST = 8192
# Images in a request.
MOST = 64
# Pixels of the side of a square of one colour: such images are small, and none is like another.
_SQUARE = 16
_FORM = "write WIDTHxHEIGHT[,COUNT], such as 512x512 or 512x512,2, or a URL"

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Images:
    """The images of each request: ``count`` of them, of this size, or those at ``url``."""

    width: int = 0
    height: int = 0
    count: int = 1
    url: str | None = None

    def added(self, messages: Sequence[Message], name: str) -> list[Message]:
        """Return the messages with the images of request ``name`` in the last one of the user."""
        places = [at for at, message in enumerate(messages) if message.get("role") == "user"]
        if not places:
            return [*messages, {"role": "user", "content": self._parts(name)}]
        at = places[-1]
        content = messages[at].get("content") or []
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        changed = {**messages[at], "content": [*parts, *self._parts(name)]}
        return [*messages[:at], changed, *messages[at + 1 :]]

    def _parts(self, name: str) -> list[dict[str, Any]]:
        urls = [self.url or self._data_url(f"{name}/{number}") for number in range(self.count)]
        return [{"type": "image_url", "image_url": {"url": url}} for url in urls]

    def _data_url(self, name: str) -> str:
        data = base64.b64encode(png(_squares(self.width, self.height, name)))
        return f"data:image/png;base64,{data.decode('ascii')}"


def parse_images(text: str) -> Images:
    """Read ``WIDTHxHEIGHT[,COUNT]``, or ``URL[,COUNT]``. Raises ``LoadTestError``."""
    where, comma, number = text.rpartition(",")
    if not (comma and re.fullmatch(r"\s*[0-9]{1,9}\s*", number)):
        where, number = text, "1"
    count = int(number)
    if not 1 <= count <= MOST:
        raise LoadTestError(f"--image {text!r}: from 1 to {MOST} images in a request, not {count}")
    if re.match(r"https?://[^/\s]", where) and where.isprintable() and " " not in where:
        return Images(count=count, url=where)
    size = re.fullmatch(r"(\d{1,9})[xX](\d{1,9})", where.strip(), re.ASCII)
    if not size:
        raise LoadTestError(f"--image {text!r}: neither a size nor a URL; {_FORM}")
    width, height = int(size[1]), int(size[2])
    if not (1 <= width <= LARGEST and 1 <= height <= LARGEST):
        raise LoadTestError(f"--image {text!r}: a side has from 1 to {LARGEST} pixels; {_FORM}")
    return Images(width, height, count)


def _squares(width: int, height: int, name: str) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Return squares of colours that follow from the name."""
    rng = np.random.default_rng(int.from_bytes(sha256(name.encode()).digest()[:8], "big"))
    across, down = -(-width // _SQUARE), -(-height // _SQUARE)
    colours = rng.integers(0, 256, (down, across, 3), dtype=np.uint8)
    wide = np.repeat(colours, _SQUARE, axis=1)[:, :width]
    return np.repeat(wide, _SQUARE, axis=0)[:height]


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
