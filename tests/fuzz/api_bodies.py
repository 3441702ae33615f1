"""Fuzz the bodies of the API, of the engine's or with ``SERVER=mock`` of the mock's:
``python -m tests.fuzz.api_bodies --minutes 10``.

Every body must be answered by 200, or by a 4xx in OpenAI's shape, and leave the server ready.
"""

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np

from tests.fuzz.campaign import command_line
from tests.fuzz.mutation import mutated_bytes, mutated_json
from tests.support.live_server import CHAT, COMPLETIONS, CONFIG, LiveServer
from tests.support.mock_process import mock_process

COMMON: dict[str, Any] = {
    "model": "fake", "max_tokens": 3, "max_completion_tokens": 2, "min_tokens": 1,
    "temperature": 0.7, "seed": 5, "ignore_eos": True, "stop": ["b", "cd"], "stream": True,
    "stream_options": {"include_usage": True}, "return_token_ids": True, "n": 2, "user": "me",
    "response_format": {"type": "text"}, "logit_bias": {"5": 1.5}, "guided_json": None,
    "top_p": 0.5, "top_k": 7, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1,
    "repetition_penalty": 1.1, "stop_token_ids": [70], "allowed_token_ids": [65, 66],
    "best_of": 2, "echo": False, "logprobs": False, "top_logprobs": 0,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto", "parallel_tool_calls": True, "functions": [{"name": "f"}],
    "reasoning_effort": "low", "service_tier": "auto", "store": False, "metadata": {"a": "b"},
    "prediction": {"type": "content", "content": "x"}, "modalities": ["text"], "suffix": "z",
    "audio": {"voice": "a", "format": "wav"}, "priority": 1, "chat_template_kwargs": {"a": 1},
    "truncate_prompt_tokens": 3, "prompt_logprobs": 1, "use_beam_search": False,
    "length_penalty": 1, "bad_words": ["b"], "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "structured_outputs": {"json": {"type": "object"}}, "guided_regex": "a+", "cache_salt": "s",
    "detokenize": True, "add_special_tokens": True, "request_id": "r", "lora_request": None,
    "top_logprobs_num": 2, "sampling_params": {"max_new_tokens": 5, "temperature": 0},
    "text": "abc", "rid": "r", "max_new_tokens": 4, "return_logprob": True, "lora_path": None,
    "session_params": {"id": "s"}, "separate_reasoning": False, "chat_template": None,
    "continue_final_message": False, "add_generation_prompt": True, "documents": [],
    "mm_processor_kwargs": None, "vllm_xargs": {}, "kv_transfer_params": None, "min_length": 0,
    "stream_interval": 1, "data_parallel_rank": 0, "bootstrap_host": "h", "stop_regex": "a",
    "no_stop_trim": True, "custom_params": None, "ebnf": None, "regex": None, "json_schema": None,
    "output_tokens": 3, "prompt_tokens": 4, "extra_body": {"top_k": 1}, "include_reasoning": True,
    "return_tokens_as_token_ids": True, "thinking": {"type": "disabled"}, "verbosity": "low",
}  # fmt: skip
PROMPTS: list[Any] = ["abc", [65, 66], ["a", "b"], [[65], [66, 67]], "é\u2028\U0001f4a9"]
MESSAGES: list[Any] = [
    {"role": "system", "content": "be"},
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "content": "5", "tool_call_id": "1"},
]
RECODED: Sequence[Callable[[bytes], bytes]] = [
    lambda raw: raw.decode("utf-8", "replace").encode("utf-16"),
    lambda raw: raw.decode("utf-8", "replace").encode("utf-8-sig"),
    lambda raw: raw.decode("utf-8", "replace").encode("utf-32-le"),
    lambda raw: raw.replace(b", ", b",\r\n"),
    lambda raw: raw[:-1] + b", " + raw[1:],
    lambda raw: raw[:-1] + b', "x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    lambda raw: raw[:-1] + b', "seed": ' + b"9" * 5000 + b"}",
    lambda raw: raw[:-1] + b', "temperature": NaN, "max_tokens": Infinity}',
    lambda raw: raw + b"\n" + raw,
    gzip.compress,
    lambda raw: b" " * 70_000 + raw,
    lambda raw: raw[:-1] + b', "user": "' + b"x" * 70_000 + b'"}',
    lambda raw: raw[:-1] + b', "metadata": [' + b"{}," * 30_000 + b"{}]}",
    lambda raw: raw[: len(raw) // 2] + b"\xc3\x28" + raw[len(raw) // 2 :],
    lambda raw: b"",
]
"""A body in odd encodings and shapes: keys twice, deep, large, of two documents."""
EXPECTED_STATUS = {200, 400, 404, 413, 429}
ERROR_FIELDS = {"message", "type", "param", "code"}
"""Of the engine; the mock has the first two."""


def draw(rng: np.random.Generator) -> bytes:
    """Return a path, a line end, and a body that was right before some changes."""
    share = rng.choice([0.01, 0.05, 0.3])  # of many fields one is refused
    names = [name for name in COMMON if rng.random() < share]
    body = {name: COMMON[name] for name in names}
    is_chat = rng.random() < 0.5
    if is_chat:
        body["messages"] = MESSAGES[: rng.integers(1, len(MESSAGES) + 1)]
    else:
        body["prompt"] = PROMPTS[rng.integers(len(PROMPTS))]
    if rng.random() < 0.8:
        body = mutated_json(rng, body)
    raw = json.dumps(body, ensure_ascii=bool(rng.random() < 0.5)).encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        raw = RECODED[int(rng.integers(len(RECODED)))](raw)
    if rng.random() < 0.3:
        raw = mutated_bytes(rng, raw)
    return f"{CHAT if is_chat else COMPLETIONS}\n".encode() + raw


class ApiBodies:
    """The check: a server that is asked with every body."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.statuses: set[int] = set()

    def check(self, data: bytes) -> None:
        """Send one body; raise ``AssertionError`` for an answer that no client expects."""
        path, _, body = data.partition(b"\n")
        response = self._client.post(path.decode(), content=body)
        self.statuses.add(response.status_code)
        assert response.status_code in EXPECTED_STATUS, f"{response.status_code} {response.text}"
        if response.status_code == 200:
            check_answer(response)
        else:
            fields = set(response.json()["error"])
            assert {"message", "type"} <= fields <= ERROR_FIELDS, response.text
        health = self._client.get("/health")
        assert health.status_code == 200, health.text


def check_answer(response: httpx.Response) -> None:
    """Assert that an answer is whole: JSON with choices, or a stream with its end."""
    if response.headers["content-type"].startswith("application/json"):
        assert response.json()["choices"], response.text
        return
    *events, end = response.text.split("\n\n")
    assert (events[-1], end) == ("data: [DONE]", ""), response.text
    for event in events[:-1]:
        assert "error" not in json.loads(event.removeprefix("data: ")), response.text


@contextmanager
def mock_client() -> Iterator[httpx.Client]:
    """Serve a fast mock for as long as the block lasts."""
    options = ("--model", "fake", "--ttft-ms", 0, "--itl-ms", 0, "--tokens", 8)
    with (
        mock_process(*options) as (_, url),
        httpx.Client(base_url=url.removesuffix("/v1"), trust_env=False, timeout=20) as client,
    ):
        yield client


def main() -> int:
    """Fuzz one server as the command line asks."""
    if os.environ.get("SERVER") == "mock":
        with mock_client() as client:
            return command_line("api_bodies", draw, ApiBodies(client).check)
    with LiveServer(CONFIG) as server:
        return command_line("api_bodies", draw, ApiBodies(server.client).check)


if __name__ == "__main__":
    sys.exit(main())
