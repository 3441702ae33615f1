"""API keys and extra headers: where they come from, and that nobody sees them."""

import base64
import html
import json
from pathlib import Path
from urllib.parse import quote, quote_plus

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from servetwin.loadtest.credentials import extra_headers, sent_headers, use_headers, use_key_of
from servetwin.loadtest.dialects.server_probe import redirect_target
from servetwin.loadtest.redaction import PART, hide_secrets, redact, shown_headers
from servetwin.workloads.errors import LoadTestError

NONE = "is no header; write 'NAME: VALUE', such as 'X-Team: a'"


@pytest.mark.parametrize("line", ["X-Team", ": blue", "X-Team:", "X Team: blue", "X: a\nY: b"])
def test_headers_that_are_none(line: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        use_headers(["X-Fine: yes", line])
    assert str(caught.value) == f"--header number 2 {NONE}"


def test_headers_of_all_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line replaces the environment, and both replace the file."""
    file = tmp_path / "headers.txt"
    file.write_text("\ufeff# of the gateway\nX-One: file\n\n  X-Two:file \r\nX-Three: file\n")
    monkeypatch.setenv("TWO", "environment")
    use_headers(["X-One: line"], ["X-Two=TWO", "X-Four=TWO"], file)
    assert extra_headers() == {
        "X-One": "line",
        "X-Two": "environment",
        "X-Three": "file",
        "X-Four": "environment",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("X-Key", "--header-env: write NAME=VARIABLE, such as X-Api-Key=MY_KEY"),
        ("X Key=A", "--header-env: write NAME=VARIABLE, such as X-Api-Key=MY_KEY"),
        ("=A", "--header-env: write NAME=VARIABLE, such as X-Api-Key=MY_KEY"),
        ("X-Key=", "--header-env: write NAME=VARIABLE, such as X-Api-Key=MY_KEY"),
        (
            "X-Key=NO_SUCH_VALUE",
            "--header-env X-Key=NO_SUCH_VALUE: no such environment variable; put the value into "
            "one",
        ),
        (
            "X-Key=TWO_LINES",
            "--header-env X-Key=TWO_LINES: the value has a line break or a character beyond ASCII",
        ),
    ],
)
def test_variables_that_are_no_headers(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setenv("TWO_LINES", "a\nb")
    with pytest.raises(LoadTestError) as caught:
        use_headers(from_environment=[text])
    assert str(caught.value) == message


def test_a_line_of_a_file_that_is_no_header(tmp_path: Path) -> None:
    file = tmp_path / "headers.txt"
    file.write_bytes(b"X-One: a\n\nX-Secret secret\n")
    with pytest.raises(LoadTestError) as caught:
        use_headers(file=file)
    assert str(caught.value) == f"--header-file {file}:3 {NONE}"
    file.write_bytes("X-One: a\n".encode("utf-16"))
    with pytest.raises(LoadTestError, match=r"headers.txt:1 is no header"):
        use_headers(file=file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(LoadTestError, match=r"absent: not a file; write 'NAME: VALUE'"):
        use_headers(file=tmp_path / "absent")
    with pytest.raises(LoadTestError, match="not a file"):
        use_headers(file=tmp_path)
    (tmp_path / "long").write_bytes(b"# comment\n" * 10_000)
    with pytest.raises(LoadTestError, match="long: longer than 65536 bytes"):
        use_headers(file=tmp_path / "long")


def test_a_key_that_is_nowhere() -> None:
    with pytest.raises(LoadTestError) as caught:
        use_key_of("NO_SUCH_KEY")
    assert str(caught.value) == (
        "--api-key-env NO_SUCH_KEY: no such environment variable; put the key into one and give "
        "its name"
    )


@pytest.mark.parametrize("key", ["sk-1\n", "sk-é"])
def test_a_key_that_no_header_can_carry(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(LoadTestError) as caught:
        sent_headers()
    assert str(caught.value) == (
        "OPENAI_API_KEY: the key has a line break or a character beyond ASCII; set it again without"
    )


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
