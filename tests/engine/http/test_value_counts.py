"""A body with more values than any request of the model has is refused before it is decoded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.http import protocol
from servetwin.engine.http.api_errors import ApiError
from servetwin.engine.http.protocol import (
    MAX_PROMPTS,
    OTHER_VALUES,
    ChatBody,
    CompletionBody,
    ModelLimits,
    read_request,
)

LONGEST = 4000
LIMITS = ModelLimits("base", 500, LONGEST)
MANY = OTHER_VALUES + 8 * LONGEST + 1


def listed(item: bytes, count: int = MANY) -> bytes:
    return b",".join([item] * count)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (CompletionBody, b'{"prompt":[%s]}' % listed(b'"a"')),
        (CompletionBody, b'{"prompt":[%s]}' % listed(b"[1]")),
        (CompletionBody, b'{"prompt":[%s]}' % listed(b"1", MAX_PROMPTS * LONGEST + MANY)),
        (CompletionBody, b'{"prompt":"a","unknown":[%s]}' % listed(b"{}")),
        (CompletionBody, b'{"prompt":"a",%s}' % listed(b'"k":1')),
        (ChatBody, b'{"messages":[%s]}' % listed(b'{"role":"user","content":"a"}')),
        (ChatBody, b'{"messages":[],"seed":[%s]}' % listed(b"1")),
        (CompletionBody, b"[" * MANY),
        (CompletionBody, b'"a\\' + b'"' * 2 * MANY),
    ],
    ids=["texts", "lists", "ids", "objects", "keys", "messages", "numbers", "deep", "torn"],
)
def test_what_no_request_has_is_not_decoded(
    kind: type[CompletionBody | ChatBody], raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(protocol, "from_json")
    with pytest.raises(ApiError, match=r"the body has \d+ .*; this model takes at most") as refused:
        read_request(kind, raw, LIMITS)
    assert (refused.value.status, refused.value.code) == (400, "too_many_values")


def test_as_many_token_ids_as_fit_are_taken() -> None:
    ids = list(range(400)) * (LONGEST // 400)
    raw = json.dumps({"prompt": [ids] * MAX_PROMPTS, "max_tokens": 1}).encode()
    with pytest.raises(ApiError, match="more than the 4000 that fit"):
        read_request(CompletionBody, json.dumps({"prompt": [*ids, 1]}).encode(), LIMITS)
    assert len(read_request(CompletionBody, raw, LIMITS).prompts) == MAX_PROMPTS


def test_as_many_short_messages_as_fit_are_taken() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}] * (LONGEST - 40)}]
    raw = json.dumps({"messages": messages}).encode()
    assert len(read_request(ChatBody, raw, LIMITS).prompts) == 1


@given(text=st.text(alphabet='",[{\\\n\x00é', min_size=1, max_size=40))
def test_what_stands_in_strings_is_not_counted(text: str) -> None:
    long = text * (LONGEST // len(text.encode()))
    raw = json.dumps({"prompt": [long] * 20, "user": text * OTHER_VALUES}).encode()
    assert len(read_request(CompletionBody, raw, LIMITS).prompts) == 20
