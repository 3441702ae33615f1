"""Plans of a mock, and the requests that it understands."""

import json
import re
from typing import Any

import pytest

from servetwin.loadtest.mock.faults import FAULTS, Cut, Freeze, Status
from servetwin.loadtest.mock.parsed_request import BadRequest, parse_request
from servetwin.loadtest.mock.plan import parse_fault
from tests.support.command import refused
from tests.support.paths import DOCS

KNOWN = ", ".join(FAULTS)
PAGE = DOCS / "test-servers.md"


def test_every_fault_and_key_is_documented_as_it_is() -> None:
    table = PAGE.read_text().partition("| fault |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split("|") for line in table.splitlines()[2:]]
    documented = {name.strip(" `"): re.findall(r"`(\w+)` ([^ ,]+)", keys) for name, keys, _ in rows}
    assert documented == {
        name: [(key, shown(field.default)) for key, field in fault.model_fields.items()]
        for name, fault in FAULTS.items()
    }


def shown(default: object) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default).lower()


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_settings_that_need_not_be_given(name: str) -> None:
    assert type(parse_fault(name)) is FAULTS[name]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cut", Cut(every=1, after=8)),
        ("cut:every=2,after=3", Cut(every=2, after=3)),
        ("cut:", Cut()),
        ("freeze:at_s=.5,for_s=1e-1", Freeze(at_s=0.5, for_s=0.1)),
        ("status:code=429,retry_after_s=7", Status(code=429, retry_after_s=7)),
    ],
)
def test_faults_as_people_write_them(text: str, fault: Any) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"unknown fault ''; known are {KNOWN}"),
        ("explode", f"unknown fault 'explode'; known are {KNOWN}"),
        ("frezee", "unknown fault 'frezee'; did you mean 'freeze'?"),
        (
            "empty:count=99999",
            "empty: field 'count': '99999' is not possible; it must be less than or equal to 10000",
        ),
        ("cu\nt:2", "unknown fault 'cu\\nt'; did you mean 'cut'?"),
        ("cut:2", "cut: '2' is not KEY=VALUE"),
        ("cut:evry=2", "cut: unknown key 'evry'; did you mean 'every'?"),
        ("cut:x=2", "cut: unknown key 'x'; known are every, after"),
        ("crlf:x=2", "crlf: unknown key 'x'; known are none"),
        (
            "cut:every=0",
            "cut: field 'every': '0' is not possible; it must be greater than or equal to 1",
        ),
        (
            "cut:after=-1",
            "cut: field 'after': '-1' is not possible; it must be greater than or equal to 0",
        ),
        (
            "freeze:for_s=nan",
            "freeze: field 'for_s' (seconds): 'nan' is not possible; it must be a finite number",
        ),
        (
            "freeze:at_s=1e300",
            "freeze: field 'at_s' (seconds): '1e300' is not possible; it must be "
            "less than or equal to 1000000000000",
        ),
        (
            "status:code=200",
            "status: field 'code': '200' is not possible; it must be greater than or equal to 400",
        ),
        (
            "garbage:kind=x",
            "garbage: field 'kind': 'x' is not possible; it must be 'html' or 'json'",
        ),
    ],
)
def test_faults_that_are_none(text: str, message: str) -> None:
    line = refused("serve", "--mock", "--fault", text)
    assert line == f"servetwin: --fault: {message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fault", "cut"], "--fault: only with --mock"),
        (["--truth", "t"], "--truth: only with --mock"),
        (["--mock", "--max-seqs", "3"], "--max-seqs: not with --mock, which has no engine"),
        (["--mock", "--ttft-ms", "-1"], "--ttft-ms: -1.0 is impossible; give at least 0"),
        (
            ["--mock", "--tokens", "0"],
            "--mock: field 'tokens': 0 is not possible; it must be greater than or",
        ),
    ],
)
def test_options_that_do_not_go_together(options: list[str], message: str) -> None:
    assert refused("serve", *options).startswith(f"servetwin: {message}")


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "the body is not a JSON object"),
        (b"\xff", 400, "the body is not a JSON object"),
        (b"[]", 400, "the body is not a JSON object"),
        (b"{}", 400, "prompt is missing"),
        (b'{"prompt": 3}', 400, "prompt is missing"),
        (b'{"prompt": "a", "n": 2}', 400, "n: the mock gives one answer"),
        (b'{"prompt": "a", "max_tokens": 0}', 400, "max_tokens must be a whole number from 1 to 1"),
        (b'{"prompt": "a", "max_tokens": true}', 400, "max_tokens must be a whole number from"),
        (b'{"prompt": "a", "max_tokens": 1000001}', 400, "max_tokens must be a whole number from"),
        (b"[" * 100_000, 400, "the body is not a JSON object"),
        (b'{"prompt": "a", "model": "b"}', 404, "the model 'b' does not exist; served is 'mock'"),
    ],
)
def test_requests_that_cannot_be_answered(body: bytes, status: int, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(0, "prompt", body, ["mock"])
    assert caught.value.status == status
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("chat", "body", "prompt_tokens", "max_tokens"),
    [
        (False, {"prompt": "a b  c"}, 3, 16),
        (False, {"prompt": [5, 6], "max_tokens": 3}, 2, 3),
        (True, {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 4}, 2, 4),
        (True, {"messages": [{"content": None}], "max_completion_tokens": 5}, 0, 5),
        (True, {"messages": [{"content": [{"type": "text", "text": "a b"}, IMAGE]}]}, 2, 16),
    ],
)
def test_what_is_asked_for(
    chat: bool, body: dict[str, Any], prompt_tokens: int, max_tokens: int
) -> None:
    ask = parse_request(3, "messages" if chat else "prompt", json.dumps(body).encode(), ["mock"])
    assert (ask.prompt_tokens, ask.max_tokens, ask.stream) == (prompt_tokens, max_tokens, False)
    assert ask.request_id == "mock-3"


@pytest.mark.parametrize(
    "part",
    [
        "a",
        {"type": "text"},
        {"type": "image_url"},
        {"type": "image_url", "image_url": {"url": "cat.png"}},
        {"type": "audio"},
    ],
)
def test_a_part_that_is_neither_text_nor_image(part: object) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()
    with pytest.raises(BadRequest, match="messages: a part of the content is not a text"):
        parse_request(0, "messages", body, ["mock"])


@pytest.mark.parametrize(("given", "tokens"), [("a b c", 3), ([5, 6], 2)])
def test_an_embedding_has_an_input(given: object, tokens: int) -> None:
    ask = parse_request(1, "input", json.dumps({"input": given, "model": "b"}).encode(), ["a", "b"])
    assert (ask.prompt_tokens, ask.max_tokens, ask.model) == (tokens, 0, "b")


def test_an_embedding_without_an_input() -> None:
    with pytest.raises(BadRequest, match="input is missing"):
        parse_request(1, "input", b"{}", ["a"])
