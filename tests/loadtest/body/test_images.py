"""Images in chats."""

import base64
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from servetwin.loadtest.body.images import SIGNATURE, Images, parse_images, png
from servetwin.workloads.errors import LoadTestError

HELLO = {"role": "user", "content": "hello"}


def pictures(images: Images, name: str) -> list[str]:
    (message,) = images.added([HELLO], name)
    text, *parts = message["content"]
    assert text == {"type": "text", "text": "hello"}
    assert {part["type"] for part in parts} <= {"image_url"}
    return [part["image_url"]["url"] for part in parts]


def test_every_request_has_images_of_its_own() -> None:
    first, second = (pictures(Images(40, 24, 2), name) for name in ("s/r0", "s/r1"))
    assert len({*first, *second}) == 4
    assert first == pictures(Images(40, 24, 2), "s/r0")
    for url in first:
        head, _, data = url.partition(",")
        assert head == "data:image/png;base64"
        assert read_back(base64.b64decode(data, validate=True)).shape == (24, 40, 3)


def test_a_large_image_is_small_to_send() -> None:
    (url,) = pictures(Images(1024, 1024), "r")
    assert len(url) < 200_000


def test_a_url_is_sent_as_it_is() -> None:
    assert pictures(Images(count=2, url="http://a/b.png"), "r") == ["http://a/b.png"] * 2


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([{"role": "system", "content": "s"}, HELLO, {"role": "assistant", "content": "a"}], 1),
        ([{"role": "user", "content": [{"type": "text", "text": "t"}]}], 0),
        ([{"role": "user", "content": None}], 0),
        ([{"role": "system", "content": "s"}], 1),
    ],
)
def test_the_last_message_of_the_user_gets_them(messages: list[dict[str, Any]], place: int) -> None:
    before = [dict(message) for message in messages]
    found = Images(url="http://a", count=1).added(messages, "r")
    assert found[place]["role"] == "user"
    assert found[place]["content"][-1]["image_url"] == {"url": "http://a"}
    others = [message for at, message in enumerate(found) if at != place]
    assert others == [message for at, message in enumerate(before) if at != place]
    assert messages == before


@pytest.mark.parametrize(
    ("text", "images"),
    [
        ("512x256", Images(512, 256)),
        ("16X16,3", Images(16, 16, 3)),
        ("https://a.b/c,d.png", Images(url="https://a.b/c,d.png")),
        ("http://a/b,2", Images(url="http://a/b", count=2)),
    ],
)
def test_what_can_be_written(text: str, images: Images) -> None:
    assert parse_images(text) == images


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither a size nor a URL; write WIDTHxHEIGHT[,COUNT]"),
        ("12", "neither a size nor a URL"),
        ("axb", "neither a size nor a URL"),
        ("-1x5", "neither a size nor a URL"),
        ("8x8,x", "neither a size nor a URL"),
        ("ftp://a/b", "neither a size nor a URL"),
        ("http:// a", "neither a size nor a URL"),
        ("0x8", "a side has from 1 to 8192 pixels"),
        ("9000x8", "a side has from 1 to 8192 pixels"),
        ("8x8,0", "from 1 to 64 images in a request, not 0"),
        ("8x8,²", "neither a size nor a URL"),
        ("8x8," + "9" * 5000, "neither a size nor a URL"),
        ("8x8,65", "from 1 to 64 images in a request, not 65"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, said: str) -> None:
    with pytest.raises(LoadTestError) as refused:
        parse_images(text)
    assert str(refused.value).startswith(f"--image {text!r}: {said}")


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
