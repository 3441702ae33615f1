"""API keys and extra headers: where they come from, and those that cannot be used."""

from pathlib import Path

import pytest

from servetwin.loadtest.credentials import extra_headers, sent_headers, use_headers, use_key_of
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
