"""Logprobs in OpenAI's two forms. The fake core gives the chosen token -0.5, the next -1.5, ..."""

from typing import Any

import pytest

from servetwin.engine.http.answers import chat_logprobs, completion_logprobs
from servetwin.engine.sampling.token_state import TokenLogprobs
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.engine.text.text_stream import TokenTexts
from tests.engine.http.test_api import events
from tests.support.live_server import CHAT, COMPLETIONS, LiveServer, with_messages, with_prompt

TEXTS = TokenTexts(ByteTokenizer())
HI = with_messages({"role": "user", "content": "hi"})


def test_a_completion_has_four_lists(server: LiveServer) -> None:
    answer = server.client.post(COMPLETIONS, json=with_prompt(max_tokens=3, logprobs=2)).json()
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["B", "C", "D"],
        "token_logprobs": [-0.5] * 3,
        "top_logprobs": [{"B": -0.5, "C": -1.5}, {"C": -0.5, "D": -1.5}, {"D": -0.5, "E": -1.5}],
        "text_offset": [0, 1, 2],
    }


def test_zero_names_the_chosen_token_alone(server: LiveServer) -> None:
    answer = server.client.post(COMPLETIONS, json=with_prompt(max_tokens=1, logprobs=0)).json()
    assert answer["choices"][0]["logprobs"]["top_logprobs"] == [{"B": -0.5}]


@pytest.mark.parametrize("absent", [None, False])
def test_without_the_field_there_are_none(server: LiveServer, absent: object) -> None:
    answer = server.client.post(COMPLETIONS, json=with_prompt(logprobs=absent)).json()
    assert answer["choices"][0]["logprobs"] is None


def test_a_stream_of_a_completion_has_them_token_by_token(server: LiveServer) -> None:
    body = with_prompt(max_tokens=3, logprobs=1, stream=True)
    *chunks, _ = events(server.client.post(COMPLETIONS, json=body))
    said = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [one["tokens"] for one in said] == [["B"], ["C"], ["D"]]
    assert [one["text_offset"] for one in said] == [[0], [1], [2]]
    assert said[2]["top_logprobs"] == [{"D": -0.5}]


def test_a_chat_has_content_with_bytes(server: LiveServer) -> None:
    body = HI | {"max_tokens": 2, "logprobs": True, "top_logprobs": 2}
    answer = server.client.post(CHAT, json=body).json()
    said = answer["choices"][0]["logprobs"]
    assert [one["token"] for one in said["content"]] == [";", "<"]
    assert said["content"][0] == {
        "token": ";",
        "logprob": -0.5,
        "bytes": [59],
        "top_logprobs": [
            {"token": ";", "logprob": -0.5, "bytes": [59]},
            {"token": "<", "logprob": -1.5, "bytes": [60]},
        ],
    }
    assert said["refusal"] is None


def test_a_stream_of_a_chat_has_them_token_by_token(server: LiveServer) -> None:
    body = HI | {"max_tokens": 2, "logprobs": True, "stream": True}
    opening, *chunks, _ = events(server.client.post(CHAT, json=body))
    assert opening["choices"][0]["logprobs"] is None
    said: list[dict[str, Any]] = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [one["content"][0]["token"] for one in said] == [";", "<"]
    assert said[0]["content"][0]["top_logprobs"] == []


def test_what_json_has_not_and_tokens_that_are_no_text() -> None:
    said = TokenLogprobs(float("-inf"), ((200, float("nan")), (66, -1.0)))
    completion = completion_logprobs([(65, None), (200, said)], TEXTS, offset=4)
    assert completion == {
        "tokens": ["A", "\ufffd"],
        "token_logprobs": [None, -9999.0],
        "top_logprobs": [None, {"\ufffd": -9999.0, "B": -1.0}],
        "text_offset": [4, 5],
    }
    (chat,) = chat_logprobs([(200, said)], TEXTS)["content"]
    assert (chat["token"], chat["bytes"], chat["logprob"]) == ("\ufffd", None, -9999.0)
