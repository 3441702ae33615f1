"""What OpenAI's clients and web pages send beside the common case."""

import json

import pytest

from servetwin.engine.http.http_settings import HttpSettings
from tests.engine.http.test_api import events
from tests.support.live_server import (
    CHAT,
    COMPLETIONS,
    CONFIG,
    LiveServer,
    wait_until,
    with_prompt,
)


@pytest.mark.parametrize("prompt", [["A", "F", "M"], [[65], [70], [77]]], ids=["texts", "ids"])
def test_several_prompts_are_several_choices(server: LiveServer, prompt: object) -> None:
    body = {"prompt": prompt, "max_tokens": 3}
    answer = server.client.post(COMPLETIONS, json=body).json()
    choices = [(choice["index"], choice["text"]) for choice in answer["choices"]]
    assert choices == [(0, "BCD"), (1, "GHI"), (2, "NOP")]
    usage = answer["usage"]
    assert [usage[f"{part}_tokens"] for part in ("prompt", "completion", "total")] == [3, 9, 12]


def test_several_prompts_in_one_stream(server: LiveServer) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 3}
    response = server.client.post(COMPLETIONS, json={"prompt": ["A", "F"]} | options)
    *chunks, usage, done = events(response)
    assert done == "[DONE]"
    assert usage["usage"]["completion_tokens"] == 6
    texts = {0: "", 1: ""}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == {0: "BCD", 1: "GHI"}
    assert len({chunk["id"] for chunk in chunks}) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_one_prompt_that_does_not_fit_refuses_all(server: LiveServer, stream: bool) -> None:
    body = {"prompt": [[65], [65] * 250], "max_tokens": 9, "stream": stream}
    response = server.client.post(COMPLETIONS, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 0)
    assert server.metrics()["vllm:kv_cache_usage_perc"] == 0


def test_tool_messages_and_an_assistant_without_content(server: LiveServer) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "5"},
    ]
    answer = server.client.post(CHAT, json={"messages": messages, "max_tokens": 1}).json()
    prompt = f"user: hi\nassistant: {json.dumps([call])}\ntool: 5\nassistant:"
    assert answer["usage"]["prompt_tokens"] == len(prompt)


def test_a_model_is_retrieved_by_its_name(server: LiveServer) -> None:
    (card,) = server.client.get("/v1/models").json()["data"]
    assert server.client.get("/v1/models/fake").json() == card
    missing = server.client.get("/v1/models/org/other")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_any_web_page_may_call_where_that_is_wanted() -> None:
    origin = {"origin": "https://page.example"}
    asks = {
        **origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    settings = HttpSettings(max_restarts=0, allow_origins=("*",), api_key="mine")
    with LiveServer(CONFIG, settings=settings) as server:
        preflight = server.client.options(CHAT, headers=asks)
        assert preflight.status_code == 200
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        key = {"authorization": "Bearer mine"}
        for response in (
            preflight,
            server.client.get("/v1/models", headers=origin | key),
            server.client.post(COMPLETIONS, headers=origin | key, json={"prompt": 5}),
        ):
            assert response.headers["access-control-allow-origin"] == "*"
        for sent in ("", "Bearer", "Bearer other", "mine2"):
            answer = server.client.get("/v1/models", headers={"authorization": sent})
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert server.client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"host": "evil.example"}, 403, "host: 'evil.example' is not this machine"),
        ({"host": ""}, 403, "host: '' is not this machine"),
        ({"host": "[::1%]"}, 403, "host: '[::1%]' is not this machine"),
        ({"host": "127.0.0.1.evil.example:80"}, 403, "host: '127.0.0.1.evil.example' is not"),
        ({"origin": "https://evil.example"}, 403, "origin: 'https://evil.example' may not call"),
        ({"origin": "null"}, 403, "origin: 'null' may not call"),
        ({"content-type": "text/plain;charset=UTF-8"}, 415, "content-type: must be"),
        ({"host": "localhost:1", "content-type": "application/json"}, 200, ""),
        ({"host": "[::1]:8000", "content-type": "application/json"}, 200, ""),
    ],
)
def test_what_a_web_page_may_send_unasked_is_refused(
    server: LiveServer, headers: dict[str, str], status: int, message: str
) -> None:
    body = json.dumps({"prompt": "hi", "max_tokens": 1})
    answer = server.client.post(COMPLETIONS, headers=headers, content=body)
    assert answer.status_code == status
    assert answer.json().get("error", {"message": ""})["message"].startswith(message)


def test_only_named_web_pages_may_call() -> None:
    settings = HttpSettings(max_restarts=0, allow_origins=("https://mine.example",))
    with LiveServer(CONFIG, settings=settings) as server:
        for name, allowed in (("mine", True), ("theirs", False)):
            response = server.client.get("/health", headers={"origin": f"https://{name}.example"})
            assert ("access-control-allow-origin" in response.headers) is allowed


def test_a_client_has_only_so_many_answers_at_once() -> None:
    with LiveServer(CONFIG, settings=HttpSettings(max_restarts=0, max_client_answers=3)) as server:
        for n, status in ((3, 200), (4, 429), (3, 200)):
            body = with_prompt(n=n, max_tokens=1, temperature=1)
            answer = server.client.post(COMPLETIONS, json=body)
            assert answer.status_code == status
            if status == 429:
                assert answer.json()["error"]["code"] == "client_limit"
                assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("host", "given", "limit"),
    [("127.0.0.1", None, None), ("0.0.0.0", None, 1024), ("localhost", 5, 5), ("::", 7, 7)],
)
def test_a_machine_that_serves_itself_has_no_limit(
    host: str, given: int | None, limit: int | None
) -> None:
    assert HttpSettings(host, max_client_answers=given).client_limit() == limit
