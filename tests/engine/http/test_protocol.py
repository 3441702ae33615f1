"""Every bad input to the HTTP API is answered by an error in OpenAI's shape that names it."""

from typing import Any

import pytest

from tests.support.live_server import CHAT, COMPLETIONS, LiveServer, with_messages, with_prompt

PROMPT = "prompt: must be a string, a list of token ids, or a list of either"
STOP = "stop: must be a non-empty string or a list of at most 4 of them"
BIAS = "logit_bias: must be an object of at most 1024 token ids, each with -100 .. 100"
MESSAGES = (
    "messages: must be a non-empty list of {role, content} with a known role and text content"
)
BAD_COMPLETIONS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt: is required"),
    ({"prompt": ""}, "prompt: is empty"),
    ({"prompt": []}, "prompt: is empty"),
    ({"prompt": [[]]}, "prompt: is empty"),
    ({"prompt": 7}, PROMPT),
    ({"prompt": {"a": 1}}, PROMPT),
    ({"prompt": [1.5]}, PROMPT),
    ({"prompt": [True]}, PROMPT),
    ({"prompt": [1, "a"]}, PROMPT),
    ({"prompt": ["a", ""]}, "prompt: is empty"),
    ({"prompt": ["a", [1]]}, PROMPT),
    ({"prompt": ["a"] * 129}, "prompt: 129 prompts in one request; at most 128 are taken"),
    ({"prompt": [[1], [5, 1000]]}, "prompt: token id 1000 is not in the vocabulary"),
    ({"prompt": [5, 1000]}, "prompt: token id 1000 is not in the vocabulary"),
    ({"prompt": [-1]}, "prompt: token id -1 is not in the vocabulary"),
    ({"prompt": [10**30]}, f"prompt: token id {10**30} is not in the vocabulary"),
    ({"max_tokens": 0}, "max_tokens: Input should be greater"),
    ({"max_tokens": -3}, "max_tokens: Input should be greater"),
    ({"max_tokens": "5"}, "max_tokens: Input should be a valid integer"),
    ({"max_tokens": 5.0}, "max_tokens: Input should be a valid integer"),
    ({"max_tokens": True}, "max_tokens: Input should be a valid integer"),
    ({"min_tokens": -1}, "min_tokens: Input should be greater"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens: 5 is more than max_tokens, 4"),
    ({"temperature": -0.1}, "temperature: Input should be greater"),
    ({"temperature": 1e-310}, "temperature: must be 0 (greedy) or at least 1e-05 (got 1e-310)"),
    ({"temperature": "hot"}, "temperature: Input should be a valid number"),
    ({"seed": 1.5}, "seed: Input should be a valid integer"),
    ({"seed": 1 << 63}, f"seed: Input should be less than {1 << 63}"),
    ({"stop": ["a"] * 5}, STOP),
    ({"stop": ""}, STOP),
    ({"stop": [""]}, STOP),
    ({"stop": 7}, STOP),
    ({"stream": "yes"}, "stream: Input should be a valid boolean"),
    ({"stream_options": []}, "stream_options: must be an object"),
    ({"ignore_eos": 1}, "ignore_eos: Input should be a valid boolean"),
    ({"model": 5}, "model: Input should be a valid string"),
    ({"n": 0}, "n: must lie in 1 .. 128"),
    ({"n": 129}, "n: must lie in 1 .. 128"),
    ({"n": "2"}, "n: must lie in 1 .. 128"),
    ({"n": 128, "prompt": ["a"] * 9}, "n: 9 prompts with 128 answers each are more than 1024"),
    ({"best_of": 3}, "best_of: must equal n, 1; every answer is returned"),
    ({"n": 2, "best_of": 1}, "best_of: must equal n, 2; every answer is returned"),
    ({"logprobs": 21}, "logprobs: must lie in 0 .. 20; in a chat it is true or false"),
    ({"logprobs": -1}, "logprobs: must lie in 0 .. 20; in a chat it is true or false"),
    ({"logprobs": True}, "logprobs: must lie in 0 .. 20; in a chat it is true or false"),
    ({"echo": 1}, "echo: must be true or false; a chat cannot echo"),
    ({"max_completion_tokens": 0}, "max_completion_tokens: Input should be greater"),
    ({"echo": True, "max_tokens": 0, "min_tokens": 1}, "min_tokens: 1 is more than max_tokens, 0"),
    ({"suffix": "x"}, "suffix: this server supports only ''"),
    ({"top_p": 0}, "top_p: must be above 0 and at most 1"),
    ({"top_p": 1.01}, "top_p: must be above 0 and at most 1"),
    ({"top_p": "0.5"}, "top_p: must be above 0 and at most 1"),
    ({"top_k": -2}, "top_k: must be at least 1, or 0 or -1 for all tokens"),
    ({"top_k": 2.5}, "top_k: must be at least 1, or 0 or -1 for all tokens"),
    ({"min_p": -0.1}, "min_p: must lie in 0 .. 1"),
    ({"presence_penalty": 2.1}, "presence_penalty: must lie in -2 .. 2"),
    ({"frequency_penalty": -3}, "frequency_penalty: must lie in -2 .. 2"),
    ({"repetition_penalty": 0}, "repetition_penalty: must be above 0 and at most 2"),
    ({"logit_bias": [5]}, BIAS),
    ({"logit_bias": {"5": 101}}, BIAS),
    ({"logit_bias": {"5": "1"}}, BIAS),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, BIAS),
    ({"logit_bias": {"five": 1}}, "logit_bias: 'five' is not a token id"),
    ({"logit_bias": {"5" * 5000: 1}}, f"logit_bias: '{'5' * 40}' is not a token id"),
    ({"logit_bias": {"-5": 1}}, "logit_bias: '-5' is not a token id"),
    ({"logit_bias": {"1000": 1}}, "logit_bias: token id 1000 is not in the vocabulary"),
    ({"stop_token_ids": [-1]}, "stop_token_ids: token id -1 is not in the vocabulary"),
    ({"stop_token_ids": 5}, "stop_token_ids: must be a list of at most 1024 token ids"),
    ({"allowed_token_ids": []}, "allowed_token_ids: must be a list of 1 to 1024 token ids"),
    ({"allowed_token_ids": [1, 1000]}, "allowed_token_ids: token id 1000 is not in"),
    ({"bad_words": ["a"]}, "bad_words: this server supports only []"),
    *(
        ({name: value}, f"{name}: is not supported by this server")
        for name, value in [
            ("guided_json", {"type": "object"}),
            ("guided_regex", "a+"),
            ("guided_choice", ["a"]),
            ("guided_grammar", "root ::= a"),
            ("structured_outputs", {"regex": "a"}),
            ("prompt_logprobs", 0),
            ("reasoning_effort", "low"),
        ]
    ),
]
BAD_CHATS = [
    (
        with_messages({"role": "user", "content": "a"}) | {"tools": [{}]},
        "tools: this server supports only []",
    ),
    (
        with_messages({"role": "user", "content": "a"}) | {"logprobs": 2},
        "logprobs: must lie in 0 .. 20; in a chat it is true or false",
    ),
    (
        with_messages({"role": "user", "content": "a"}) | {"logprobs": True, "top_logprobs": 21},
        "top_logprobs: must lie in 0 .. 20",
    ),
    (
        with_messages({"role": "user", "content": "a"}) | {"top_logprobs": 1},
        'top_logprobs: needs "logprobs": true',
    ),
    (
        with_messages({"role": "user", "content": "a"}) | {"echo": True},
        "echo: must be true or false; a chat cannot echo",
    ),
    ({}, "messages: is required"),
    (with_messages(), MESSAGES),
    ({"messages": "hi"}, MESSAGES),
    (with_messages("hi"), MESSAGES),
    (with_messages({"role": "user"}), MESSAGES),
    (with_messages({"role": "user", "content": None}), MESSAGES),
    (with_messages({"role": "tool", "content": 5}), MESSAGES),
    (with_messages({"role": "pope", "content": "a"}), MESSAGES),
    (with_messages({"role": "user", "content": [{"type": "image_url"}]}), MESSAGES),
]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [(COMPLETIONS, with_prompt(**fields), message) for fields, message in BAD_COMPLETIONS]
    + [(CHAT, body, message) for body, message in BAD_CHATS],
)
def test_a_bad_field_is_named(
    server: LiveServer, path: str, body: dict[str, Any], message: str
) -> None:
    response = server.client.post(path, json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["message"].startswith(message)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == message.partition(":")[0]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": [65] * 200, "max_tokens": 101}),  # the model length is 300
        (COMPLETIONS, {"prompt": [65] * 200, "max_tokens": 58}),  # the KV memory is 256
        (COMPLETIONS, {"prompt": [65] * 257}),
        (COMPLETIONS, {"prompt": [65], "max_tokens": 10**12}),
        (CHAT, with_messages({"role": "user", "content": "x" * 300})),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_too_long(server: LiveServer, path: str, body: dict[str, Any], stream: bool) -> None:
    response = server.client.post(path, json=body | {"stream": stream})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_the_longest_that_fits_is_answered(server: LiveServer) -> None:
    body = {"prompt": [65] * 200, "max_tokens": 57}  # the last token is never stored
    answer = server.client.post(COMPLETIONS, json=body).json()
    assert answer["usage"]["completion_tokens"] == 57


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"prompt": "\xff"}', b"[]", b"7", b"[" * 10_000, b"null"]
)
def test_a_body_that_is_no_json_object(server: LiveServer, content: bytes) -> None:
    response = server.client.post(COMPLETIONS, content=content)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param", "code"),
    [
        ("POST", COMPLETIONS, with_prompt(model="gpt-4"), 404, "model", "model_not_found"),
        ("GET", "/v1/nothing", None, 404, None, None),
        ("GET", COMPLETIONS, None, 405, None, None),
        ("POST", "/v1/models", {}, 405, None, None),
    ],
)
def test_other_errors_have_the_same_shape(
    server: LiveServer,
    method: str,
    path: str,
    body: object,
    status: int,
    param: str | None,
    code: str | None,
) -> None:
    response = server.client.request(method, path, json=body)
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"]) == (param, code)
