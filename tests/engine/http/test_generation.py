"""A checkpoint behind the API: its name, its tokens, its chats, and what it refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from servetwin.engine import LLM, SamplingParams
from servetwin.engine.http.engine_server import EngineServer
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.checkpoints import write_checkpoint

POLICIES = PolicyConfig(kv_tokens=1024, max_model_len=200)
TEMPLATE = """{%- for message in messages -%}
{%- if message.role == 'system' -%}{{ raise_exception('no system') }}{%- endif -%}
{{ message.role }}:{{ message.content }}{{ message.tool_calls | tojson if message.tool_calls }};
{%- endfor -%}
{{ tools | tojson if tools }}{{ mood }}"""
USER = {"role": "user", "content": "the dog"}
TOOL = {"type": "function", "function": {"name": "bark"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_checkpoint(tmp_path_factory.mktemp("models") / "my-llama")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(str(folder), device="cpu", policies=POLICIES)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    with (
        EngineServer(ServeOptions(str(folder), POLICIES)) as server,
        httpx.Client(base_url=f"{server.url}/v1", trust_env=False, timeout=60) as client,
    ):
        yield client


def completion(client: httpx.Client, **body: Any) -> Any:
    answer = client.post("/completions", json={"max_tokens": 20} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def chat_ids(client: httpx.Client, *messages: Any, **body: Any) -> list[int]:
    asked = {"messages": messages, "max_tokens": 8, "return_token_ids": True} | body
    answer = client.post("/chat/completions", json=asked)
    assert answer.status_code == 200, answer.text
    ids: list[int] = answer.json()["choices"][0]["token_ids"]
    return ids


@pytest.mark.slow
def test_the_model_is_called_as_its_folder(client: httpx.Client) -> None:
    (card,) = client.get("/models").json()["data"]
    assert (card["id"], card["max_model_len"], card["vocab_size"]) == ("my-llama", 200, 512)
    assert completion(client, prompt="a", model="my-llama")["model"] == "my-llama"
    assert client.post("/completions", json={"prompt": "a", "model": "tiny"}).status_code == 404


def test_text_is_that_of_the_tokens_streamed_or_whole(client: httpx.Client, llm: LLM) -> None:
    (expected,) = llm.generate(["the dog"], SamplingParams(20))
    (choice,) = completion(client, prompt="the dog", return_token_ids=True)["choices"]
    assert choice["text"] == expected.text
    assert choice["token_ids"] == expected.token_ids
    body = {"prompt": "the dog", "max_tokens": 20, "stream": True}
    lines = client.post("/completions", json=body).text.split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == expected.text
    stop = expected.text[4:7]
    (cut,) = completion(client, prompt="the dog", stop=stop)["choices"]
    assert cut["text"] == expected.text[: expected.text.index(stop)]
    assert cut["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("messages", "body", "prompt"),
    [
        ([USER], {}, "user:the dog;"),
        ([USER | {"content": [{"type": "text", "text": "the dog"}]}], {}, "user:the dog;"),
        ([USER], {"tools": [TOOL]}, f"user:the dog;{json.dumps([TOOL])}"),
        ([USER], {"tools": [TOOL], "tool_choice": "none"}, "user:the dog;"),
        ([USER], {"chat_template_kwargs": {"mood": "glad"}}, "user:the dog;glad"),
        (
            [{"role": "assistant", "tool_calls": [TOOL]}],
            {},
            f"assistant:None{json.dumps([TOOL])};",
        ),
    ],
)
def test_chats_go_through_the_template(
    client: httpx.Client, llm: LLM, messages: list[Any], body: dict[str, Any], prompt: str
) -> None:
    tokenizer = llm._tokenizer
    ids = tokenizer._tokenizer.encode(prompt, add_special_tokens=False).ids  # type: ignore[attr-defined]
    (expected,) = llm.generate([ids], SamplingParams(8))
    assert chat_ids(client, *messages, **body) == expected.token_ids


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("completions", {"prompt": [5, 512]}, "prompt: token id 512 is not in the vocabulary"),
        ("completions", {"prompt": [5] * 201}, "201 prompt tokens are more than the 200 that fit"),
        (
            "completions",
            {"prompt": [5] * 200, "max_tokens": 1},
            "201 tokens are more than the model",
        ),
        ("completions", {"prompt": "€ " * 40_000}, "prompt tokens are more than the 200 that fit"),
        ("completions", {"prompt": "a", "tools": [TOOL]}, "tools: this server supports only []"),
        ("chat/completions", {"messages": [USER] * 90}, "are more than the 200 that fit"),
        (
            "chat/completions",
            {"messages": [USER | {"role": "system"}]},
            "messages: the model's chat template refuses them: no system",
        ),
        ("chat/completions", {"messages": [USER], "tools": 5}, "tools: must be a list of objects"),
        (
            "chat/completions",
            {"messages": [USER], "tools": [TOOL], "tool_choice": "required"},
            "tool_choice: ",
        ),
    ],
)
def test_what_the_model_cannot_take_is_a_400(
    client: httpx.Client, path: str, body: dict[str, Any], message: str
) -> None:
    answer = client.post(f"/{path}", json=body)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]["message"]


@pytest.mark.slow
def test_a_checkpoint_that_is_not_whole_is_no_server(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:9000])
    with pytest.raises(EngineError, match=rf"^{weights}: is truncated: "):
        EngineServer(ServeOptions(str(folder), POLICIES)).__enter__()
