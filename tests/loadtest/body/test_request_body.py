"""The body that is sent, in each dialect."""

from typing import Any

import pytest

from servetwin.loadtest.body.body_options import PLAIN, BodyOptions
from servetwin.loadtest.body.images import Images
from servetwin.loadtest.body.request_body import request_body
from servetwin.loadtest.dialects.dialect import Api, PreparedRequest
from servetwin.loadtest.dialects.registry import DIALECTS

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
