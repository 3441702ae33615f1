"""Bodies of requests: options, mixes of models, images, further fields, and what cannot be."""

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from servetwin.loadtest.body.extra_body import parse_extra_body, parse_sampling
from servetwin.loadtest.body.images import SIGNATURE, Images, parse_images, png
from servetwin.loadtest.body.options import (
    PLAIN,
    BodyOptions,
    check_options,
    request_body,
)
from servetwin.loadtest.dialects.dialect import Api, PreparedRequest
from servetwin.loadtest.dialects.servers import DIALECTS
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.lora_mix import LoraMix

LORA = BodyOptions(lora=LoraMix({"sql": 0.5}))


@pytest.mark.parametrize(
    ("options", "api", "said"),
    [
        (BodyOptions(images=Images(8, 8)), "completions", "--image and --api completions: images"),
        (BodyOptions(images=Images(8, 8)), "embeddings", "--image and --api embeddings: images"),
        (BodyOptions(whole=True), "native", "--no-stream: the native API is read as a stream"),
        (LORA, "native", "--lora-modules: the native API has none"),
        (BodyOptions(sampling={"seed": 1}), "embeddings", "--sampling and --api embeddings: an"),
        (LORA, "chat", "--lora-modules sql: not served there; it serves base, other"),
    ],
)
def test_what_does_not_fit_is_one_line(options: BodyOptions, api: Api, said: str) -> None:
    with pytest.raises(LoadTestError) as refused:
        check_options(options, api, ["base", "other"])
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("models", [[], ["base", "sql"]])
def test_a_module_may_be_served(models: list[str]) -> None:
    check_options(LORA, "chat", models)
    check_options(PLAIN, "native", models)


REQUEST = PreparedRequest("m", "why", 5, True)


def body(dialect: str, api: Api, options: BodyOptions = PLAIN) -> dict[str, Any]:
    return request_body(DIALECTS[dialect], api, REQUEST, options, "r0")


@pytest.mark.parametrize("name", DIALECTS)
def test_without_options_it_is_the_dialect_s(name: str) -> None:
    dialect = DIALECTS[name]
    for api in dialect.apis:
        assert body(name, api) == dialect.body(api, REQUEST)


@pytest.mark.parametrize(
    ("dialect", "api", "place"),
    [
        ("vllm", "completions", None),
        ("vllm", "chat", None),
        ("llamacpp", "native", None),
        ("triton", "native", None),
        ("sglang", "native", "sampling_params"),
        ("sglang", "chat", None),
        ("tgi", "native", "parameters"),
        ("ollama", "native", "options"),
    ],
)
def test_sampling_stands_where_the_api_has_it(dialect: str, api: Api, place: str | None) -> None:
    found = body(dialect, api, BodyOptions(sampling={"temperature": 0.7, "top_p": 0.9}))
    inside = found if place is None else found[place]
    assert (inside["temperature"], inside["top_p"]) == (0.7, 0.9)
    plain = body(dialect, api)
    assert found.keys() - plain.keys() <= {"temperature", "top_p"}
    if place:
        assert found[place].keys() >= plain[place].keys()
    if dialect == "tgi":
        assert found["parameters"]["do_sample"] is True


def test_further_fields_win() -> None:
    options = BodyOptions(sampling={"top_p": 0.9}, extra={"top_p": 0.5, "user": "u"})
    found = body("openai", "chat", options)
    assert (found["top_p"], found["user"]) == (0.5, "u")


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_whole_answer_is_no_stream(api: Api) -> None:
    found = body("vllm", api, BodyOptions(whole=True))
    assert found == {k: v for k, v in body("vllm", api).items() if not k.startswith("stream")}


def test_an_embedding_has_an_input_and_no_length() -> None:
    assert body("openai", "embeddings") == {"model": "m", "input": "why"}


def test_images_are_parts_of_the_chat() -> None:
    found = body("openai", "chat", BodyOptions(images=Images(8, 8, 2)))
    (message,) = found["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "image_url"]


def test_an_object_is_taken_from_the_line_or_a_file(tmp_path: Path) -> None:
    text = '{"user": "ä", "logit_bias": {"5": -1}}'
    (tmp_path / "extra.json").write_text(text, encoding="utf-8")
    fields = {"user": "ä", "logit_bias": {"5": -1}}
    assert parse_extra_body(text) == parse_extra_body(f"@{tmp_path}/extra.json") == fields


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--extra-body: not JSON ("),
        ("{top_p: 1}", "--extra-body: not JSON ("),
        ("[1]", "--extra-body: JSON, but no object; write"),
        ("@/nowhere/x.json", "--extra-body @/nowhere/x.json: cannot be read (No such file"),
        ('{"model": "m"}', "the load test sets 'model' itself; see --model"),
        ('{"max_tokens": 4}', "the load test sets 'max_tokens' itself; see --output-tokens"),
        ('{"stream": false}', "the load test sets 'stream' itself; see --no-stream"),
        ('{"messages": []}', "the load test sets 'messages' itself; see --trace"),
        ("[" * 100_000, "--extra-body: not JSON ("),
    ],
)
def test_what_cannot_be_taken_is_one_line(text: str, said: str) -> None:
    with pytest.raises(LoadTestError) as refused:
        parse_extra_body(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for data in (b"{", b"\xff\xfe", b" " * (2 << 20)):
        path.write_bytes(data)
        with pytest.raises(LoadTestError, match=f"--extra-body @{path}: "):
            parse_extra_body(f"@{path}")


def test_sampling_parameters_are_numbers() -> None:
    found = parse_sampling("temperature=0.7, top_k=5,seed=3")
    assert found == {"temperature": 0.7, "top_k": 5, "seed": 3}
    assert [type(value) for value in found.values()] == [float, int, int]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("temperature", "--sampling: 'temperature' is not KEY=VALUE"),
        ("temprature=1", "--sampling: unknown 'temprature'; did you mean 'temperature'?"),
        ("top_k=1.5", "--sampling: top_k=1.5: not a whole number"),
        ("temperature=hot", "--sampling: temperature=hot: not a number"),
        ("temperature=nan", "--sampling: temperature=nan: not a number"),
        ("temperature=1e309", "--sampling: temperature=1e309: not a number"),
    ],
)
def test_sampling_that_cannot_be_read_is_one_line(text: str, said: str) -> None:
    with pytest.raises(LoadTestError) as refused:
        parse_sampling(text)
    assert str(refused.value).startswith(said)


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
def test_images_that_cannot_be_read_are_one_line(text: str, said: str) -> None:
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
