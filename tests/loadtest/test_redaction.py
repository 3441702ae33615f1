"""Secrets are hidden in whatever form a server repeats them."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from servetwin.loadtest.credentials import use_headers
from servetwin.loadtest.dialects.server_probe import redirect_target
from servetwin.loadtest.redaction import PART, hide_secrets, redact, shown_headers

SECRET = 'sk-Live/9a+b c&d<e>"0123456789zyx'
LOGIN = base64.b64encode(b"user:hunter2222").decode()


@pytest.fixture(autouse=True)
def headers(no_credentials: None) -> None:
    use_headers([f"X-Key: {SECRET}", "X-Team: blue", f"Authorization: Basic {LOGIN}"])


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        SECRET.upper(),
        quote(SECRET),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        html.escape(SECRET),
        json.dumps(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        SECRET[:PART],
        SECRET[-12:],
        SECRET[8:20],
        f"{SECRET[:4]}...{SECRET[-4:]}",
        f"{SECRET[:3]}********{SECRET[-3:]}",
        f"{SECRET[:5]}…",
        "blue",
        "hunter2222",
        LOGIN,
    ],
)
def test_every_form_is_hidden(written: str) -> None:
    hidden = hide_secrets(f"the key ({written}) is wrong")
    assert set(hidden.removeprefix("the key (").removesuffix(") is wrong")) <= {*'*.…"=', "l", "g"}
    assert hidden.startswith("the key (")
    assert hidden.endswith(") is wrong")


@pytest.mark.parametrize(
    "text", ["HTTP 404: no such model", "bluebell", "sk", "9a+b", "basic auth"]
)
def test_other_words_stay(text: str) -> None:
    assert hide_secrets(text) == text


@given(
    before=st.binary(max_size=5),
    after=st.binary(max_size=5),
    secret=st.binary(min_size=8).map(bytes.hex),
)
def test_base64_around_a_secret_has_no_part_of_it(before: bytes, after: bytes, secret: str) -> None:
    """What is left of base64 gives back no six characters in a row."""
    use_headers([f"X-Key: {secret}"])
    written = base64.b64encode(before + secret.encode() + after).decode()
    left = [part for part in hide_secrets(written).split("***") if part]
    assume(len(secret) >= PART)
    for part in left:
        for skipped in range(4):
            whole = part[skipped:]
            decoded = base64.b64decode(whole[: len(whole) // 4 * 4], validate=False)
            found = decoded.decode(errors="replace")
            assert not any(secret[at : at + PART] in found for at in range(len(secret) - PART + 1))


@given(at=st.integers(0, 60), most=st.integers(1, 60))
def test_a_cut_leaves_no_part_at_the_end(at: int, most: int) -> None:
    shown = hide_secrets("x" * at + SECRET, most)
    assert set(shown) <= {"x", "*"}
    assert len(shown) <= most


def test_a_redacted_text_is_one_line() -> None:
    assert redact(f"no\n  such\tkey {SECRET}\n") == "no such key ***"


def test_what_would_command_a_terminal_is_gone() -> None:
    assert redact("no \x1b[31mroom\x00 \ud800") == "no ?[31mroom? ?"


def test_every_value_is_stored_hidden() -> None:
    assert shown_headers() == {"X-Key": "***", "X-Team": "***", "Authorization": "***"}


def test_without_secrets_texts_stay() -> None:
    use_headers([])
    assert hide_secrets(SECRET) == SECRET


ASKED = httpx.Request("POST", "http://h:8000/v1/completions")


@pytest.mark.parametrize(
    ("status", "location", "target"),
    [
        (307, "https://other.example/v1/completions", "https://other.example/v1/completions"),
        (301, "/v1/completions/", "http://h:8000/v1/completions/"),
        (302, "https://u:pw@login.example/in?state=a1b2#top", "https://login.example/in"),
        (302, "http://h:port/in?x=1", "http://h:port/in"),
        (302, None, ""),
        (201, "/v1/made", ""),
    ],
)
def test_targets(status: int, location: str | None, target: str) -> None:
    headers = {} if location is None else {"location": location}
    assert redirect_target(httpx.Response(status, headers=headers, request=ASKED)) == target
