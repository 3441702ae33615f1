"""API key and extra headers: in the environment and in requests, and nowhere else.

They are kept in the environment so that worker processes inherit them and nothing that is stored
or printed can hold them. ``loadtest.redaction`` hides them in texts.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from servetwin.workloads.errors import LoadTestError, os_errors

KEY_VARIABLE = "OPENAI_API_KEY"
_CHOSEN_VARIABLE = "SERVETWIN_API_KEY_ENV"
_HEADERS_VARIABLE = "SERVETWIN_HEADERS"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORM = "write 'NAME: VALUE', such as 'X-Team: a'"
_FILE_LIMIT_BYTES = 65_536


def use_key_of(variable: str) -> None:
    """Take the API key from this environment variable from now on.

    Raises ``LoadTestError`` where the variable is not set.
    """
    key_in(variable)
    os.environ[_CHOSEN_VARIABLE] = variable


def key_in(variable: str) -> str:
    """Return the key in an environment variable; raises ``LoadTestError`` where there is none."""
    if not (key := os.environ.get(variable)):
        hint = "put the key into one and give its name"
        raise LoadTestError(f"--api-key-env {variable}: no such environment variable; {hint}")
    return key


def use_headers(
    lines: Sequence[str] = (), from_environment: Sequence[str] = (), file: Path | None = None
) -> None:
    """Send these headers with every request from now on; of one name the last counts.

    They come from a ``file`` with one header on each line, then from environment variables
    (``NAME=VARIABLE`` each), then as ``lines`` (``NAME: VALUE`` each). Raises ``LoadTestError`` for
    what is no header, without repeating it: it may hold a secret.
    """
    headers = [
        *(_headers_of_file(file) if file else ()),
        *map(_header_of_variable, from_environment),
        *(_header(line, f"--header number {number}") for number, line in enumerate(lines, 1)),
    ]
    os.environ[_HEADERS_VARIABLE] = "\n".join(headers)


def _headers_of_file(path: Path) -> Iterator[str]:
    """Yield the headers of a file; empty lines and lines that begin with # are comments."""
    with os_errors(LoadTestError, f"--header-file {path}: cannot be read"):
        if not path.is_file():
            raise LoadTestError(f"--header-file {path}: not a file; {_FORM} on each of its lines")
        with path.open("rb") as file:
            data = file.read(_FILE_LIMIT_BYTES + 1)
    if len(data) > _FILE_LIMIT_BYTES:
        raise LoadTestError(f"--header-file {path}: longer than {_FILE_LIMIT_BYTES} bytes")
    for number, line in enumerate(data.decode("utf-8-sig", errors="replace").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            yield _header(line.strip(), f"--header-file {path}:{number}")


def _header_of_variable(text: str) -> str:
    name, equals, variable = text.partition("=")
    where = f"--header-env {name}={variable}"
    if not (equals and _NAME.fullmatch(name) and variable):
        raise LoadTestError("--header-env: write NAME=VARIABLE, such as X-Api-Key=MY_KEY")
    if not (value := os.environ.get(variable)):
        raise LoadTestError(f"{where}: no such environment variable; put the value into one")
    if not _is_plain(value):
        raise LoadTestError(f"{where}: the value has a line break or a character beyond ASCII")
    return f"{name}: {value}"


def _header(line: str, where: str) -> str:
    name, colon, value = line.partition(":")
    if not (colon and _NAME.fullmatch(name) and value.strip() and _is_plain(value)):
        raise LoadTestError(f"{where} is no header; {_FORM}")
    return line


def key_variable() -> str:
    """Return the name of the environment variable for the API key, set or not."""
    return os.environ.get(_CHOSEN_VARIABLE) or KEY_VARIABLE


def sent_headers() -> dict[str, str]:
    """Return the key as a bearer token, and the extra headers; never store them.

    Raises ``LoadTestError`` for a key that no header can carry.
    """
    key, extra = os.environ.get(key_variable()), extra_headers()
    if not key or "authorization" in (name.lower() for name in extra):
        return extra
    if not _is_plain(key):
        reason = "the key has a line break or a character beyond ASCII"
        raise LoadTestError(f"{key_variable()}: {reason}; set it again without")
    return {"Authorization": f"Bearer {key}", **extra}


def extra_headers() -> dict[str, str]:
    """Return the headers that the user gave."""
    lines = os.environ.get(_HEADERS_VARIABLE, "").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def carried_variables() -> dict[str, str]:
    """Return the variables that a worker on another machine needs, with their values."""
    names = (key_variable(), _CHOSEN_VARIABLE, _HEADERS_VARIABLE)
    return {name: os.environ[name] for name in names if name in os.environ}


def secret_values() -> list[str]:
    """Return the key and the values of all headers that the user gave."""
    return [*extra_headers().values(), *filter(None, [os.environ.get(key_variable())])]


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()
