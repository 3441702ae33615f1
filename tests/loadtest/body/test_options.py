"""Options that an API or a server cannot have."""

from collections import Counter
from typing import Any

import pytest

from servetwin.loadtest.body.images import Images
from servetwin.loadtest.body.options import (
    PLAIN,
    BodyOptions,
    LoraMix,
    check_options,
    parse_lora_mix,
    request_body,
)
from servetwin.loadtest.dialects.dialect import Api, PreparedRequest
from servetwin.loadtest.dialects.servers import DIALECTS
from servetwin.workloads.errors import LoadTestError

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


def test_shares_are_kept_and_the_rest_is_the_base_model() -> None:
    mix = parse_lora_mix("sql=0.3, chat=20%", 7)
    assert mix.shares == {"sql": 0.3, "chat": 0.2}
    counts = Counter(mix.model(f"r{number}", "base") for number in range(10_000))
    for name, share in {"sql": 0.3, "chat": 0.2, "base": 0.5}.items():
        deviation = (share * (1 - share) / 10_000) ** 0.5
        assert abs(counts[name] / 10_000 - share) < 4 * deviation


def test_a_draw_is_of_the_seed_and_the_request_alone() -> None:
    drawn = [LoraMix({"a": 0.5}, 1).model(f"r{number}", "b") for number in range(50)]
    assert drawn == [LoraMix({"a": 0.5}, 1).model(f"r{number}", "b") for number in range(50)]
    assert drawn != [LoraMix({"a": 0.5}, 2).model(f"r{number}", "b") for number in range(50)]


def test_shares_of_all_leave_nothing_for_the_base_model() -> None:
    mix = parse_lora_mix("a=0.1,b=0.2,c=0.7", 0)
    assert {mix.model(f"r{number}", "base") for number in range(2000)} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no module; NAME=SHARE"),
        ("a", "--lora-modules: 'a' is not NAME=SHARE"),
        ("a=", "a=: not a share above 0 and at most 1"),
        ("a=0", "a=0: not a share"),
        ("a=nan", "a=nan: not a share"),
        ("a=-1%", "a=-1%: not a share"),
        ("a=2", "a=2: not a share"),
        ("a=0.6,b=0.6", "the shares add up to 1.2, more than 1"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, said: str) -> None:
    with pytest.raises(LoadTestError, match=r"^--lora-modules") as refused:
        parse_lora_mix(text, 0)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
