"""Completions that begin with their prompt. The fake core says -0.25 of each prompt token."""

import pytest

from tests.engine.http.test_api import events
from tests.support.live_server import COMPLETIONS, LiveServer, with_prompt


def test_an_echo_stands_before_the_output(server: LiveServer) -> None:
    body = with_prompt(prompt=["AB", "F"], max_tokens=2, echo=True, return_token_ids=True)
    answer = server.client.post(COMPLETIONS, json=body).json()
    assert [one["text"] for one in answer["choices"]] == ["ABCD", "FGH"]
    assert answer["choices"][0]["token_ids"] == [67, 68]
    assert answer["choices"][0]["logprobs"] is None
    assert [answer["usage"][f"{part}_tokens"] for part in ("prompt", "completion")] == [3, 4]


def test_token_ids_are_echoed_as_their_text(server: LiveServer) -> None:
    body = with_prompt(prompt=[70, 300], max_tokens=1, echo=True)
    answer = server.client.post(COMPLETIONS, json=body).json()
    assert answer["choices"][0]["text"] == "F w300 w301"


def test_with_logprobs_the_prompt_has_them_too(server: LiveServer) -> None:
    body = with_prompt(prompt="ABC", max_tokens=2, echo=True, logprobs=1, n=2)
    answer = server.client.post(COMPLETIONS, json=body).json()
    for choice in answer["choices"]:
        assert choice["logprobs"] == {
            "tokens": ["A", "B", "C", "D", "E"],
            "token_logprobs": [None, -0.25, -0.25, -0.5, -0.5],
            "top_logprobs": [None, {"B": -0.25}, {"C": -0.25}, {"D": -0.5}, {"E": -0.5}],
            "text_offset": [0, 1, 2, 3, 4],
        }


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("logprobs", [None, 0])
def test_zero_tokens_give_the_prompt_alone(
    server: LiveServer, name: str, logprobs: int | None
) -> None:
    body = with_prompt(prompt="ABC", echo=True, logprobs=logprobs) | {name: 0}
    answer = server.client.post(COMPLETIONS, json=body).json()
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("ABC", "length")
    assert answer["usage"]["completion_tokens"] == 0
    if logprobs is not None:
        assert choice["logprobs"]["token_logprobs"] == [None, -0.25, -0.25]


def test_a_stream_begins_with_a_chunk_of_the_prompt(server: LiveServer) -> None:
    body = with_prompt(prompt="ABC", max_tokens=2, echo=True, logprobs=0, stream=True)
    *chunks, _ = events(server.client.post(COMPLETIONS, json=body))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [one["text"] for one in choices] == ["ABC", "D", "E"]
    assert [one["finish_reason"] for one in choices] == [None, None, "length"]
    assert [one["logprobs"]["text_offset"] for one in choices] == [[0, 1, 2], [3], [4]]


def test_a_stream_of_the_prompt_alone_is_one_chunk(server: LiveServer) -> None:
    body = with_prompt(prompt="ABC", max_tokens=0, echo=True, stream=True)
    *chunks, done = events(server.client.post(COMPLETIONS, json=body))
    assert done == "[DONE]"
    (choice,) = [chunk["choices"][0] for chunk in chunks]
    assert (choice["text"], choice["finish_reason"]) == ("ABC", "length")
