"""Several answers to one prompt over HTTP."""

from collections.abc import Iterator

import pytest

from servetwin.policies.config import PolicyConfig
from tests.engine.http.test_api import connect_and_ask, events
from tests.support.live_server import (
    CHAT,
    COMPLETIONS,
    LiveServer,
    wait_until,
    with_messages,
    with_prompt,
)

SLOW = PolicyConfig(kv_tokens=1024, block_tokens=4, max_model_len=300, max_seqs=4)


@pytest.fixture
def slow_server() -> Iterator[LiveServer]:
    with LiveServer(SLOW, step_s=0.02) as live:
        yield live


def test_one_answer_has_n_choices_and_counts_the_prompt_once(server: LiveServer) -> None:
    answer = server.client.post(COMPLETIONS, json=with_prompt(max_tokens=3, n=3, best_of=3)).json()
    choices = [
        (one["index"], one["text"], one["finish_reason"], one["logprobs"])
        for one in answer["choices"]
    ]
    assert choices == [(place, "BCD", "length", None) for place in range(3)]
    usage = answer["usage"]
    assert [usage[f"{part}_tokens"] for part in ("prompt", "completion", "total")] == [1, 9, 10]


def test_a_chat_has_n_messages(server: LiveServer) -> None:
    body = with_messages({"role": "user", "content": "hi"}) | {"n": 2, "max_tokens": 2}
    answer = server.client.post(CHAT, json=body).json()
    assert [one["message"]["content"] for one in answer["choices"]] == [";<", ";<"]
    assert [one["index"] for one in answer["choices"]] == [0, 1]


def test_the_answers_to_each_of_several_prompts_stand_together(server: LiveServer) -> None:
    body = with_prompt(prompt=["A", "F"], max_tokens=2, n=2, logprobs=0)
    answer = server.client.post(COMPLETIONS, json=body).json()
    assert [(one["index"], one["text"]) for one in answer["choices"]] == [
        (0, "BC"),
        (1, "BC"),
        (2, "GH"),
        (3, "GH"),
    ]
    assert answer["choices"][3]["logprobs"]["tokens"] == ["G", "H"]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_stream_has_an_index_in_each_chunk(server: LiveServer, path: str) -> None:
    body = with_prompt() | with_messages({"role": "user", "content": "hi"})
    options = {"stream": True, "stream_options": {"include_usage": True}, "n": 3, "max_tokens": 4}
    *chunks, usage, done = events(server.client.post(path, json=body | options))
    assert done == "[DONE]"
    assert usage["usage"]["completion_tokens"] == 12
    texts, ends = ["", "", ""], [0, 0, 0]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        delta = choice.get("delta", choice)
        texts[choice["index"]] += delta.get("content", delta.get("text", ""))
        ends[choice["index"]] += choice["finish_reason"] == "length"
    assert len(set(texts)) == 1
    assert len(texts[0]) == 4
    assert ends == [1, 1, 1]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_more_answers_than_slots_are_answered_all_the_same(server: LiveServer) -> None:
    answer = server.client.post(COMPLETIONS, json=with_prompt(max_tokens=5, n=11)).json()
    assert [one["text"] for one in answer["choices"]] == ["BCDEF"] * 11
    assert server.metrics()["vllm:kv_cache_usage_perc"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_all_samples(slow_server: LiveServer, stream: bool) -> None:
    connection = connect_and_ask(slow_server, with_prompt(max_tokens=250, stream=stream, n=3))
    wait_until(lambda: slow_server.metrics()["vllm:num_requests_running"] == 3)
    connection.close()
    wait_until(lambda: slow_server.metrics()["vllm:num_requests_running"] == 0)
    assert slow_server.metrics()["vllm:kv_cache_usage_perc"] == 0
    assert slow_server.metrics()["vllm:request_success_total/abort"] == 1


def test_samples_of_a_server_that_cannot_share_are_sequences_of_their_own() -> None:
    config = PolicyConfig("static", kv="contiguous", kv_tokens=512, max_model_len=64, max_seqs=4)
    with LiveServer(config) as server:
        answer = server.client.post(COMPLETIONS, json=with_prompt(max_tokens=3, n=6)).json()
        assert [one["text"] for one in answer["choices"]] == ["BCD"] * 6
        too_long = with_prompt(max_tokens=99, n=2)
        assert server.client.post(COMPLETIONS, json=too_long).status_code == 400
        wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 0)
