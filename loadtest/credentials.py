"""API key and extra headers: in the environment and in requests, and nowhere else.

They are kept in the environment so that worker processes inherit them and nothing that is stored or
printed can hold them. ``redact`` removes them from messages of the server.
"""

import os
import re
from collections.abc import Sequence

from workloads.errors import LoadTestError

KEY_VARIABLE = "OPENAI_API_KEY"
_CHOSEN_VARIABLE = "SERVETWIN_API_KEY_ENV"
_HEADERS_VARIABLE = "SERVETWIN_HEADERS"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET = re.compile(r"auth|key|token|cookie|secret|password", re.IGNORECASE)
_HIDDEN = "***"


def use_key_of(variable: str) -> None:
    """Take the API key from this environment variable from now on.

    Raises ``LoadTestError`` where the variable is not set.
    """
    if not os.environ.get(variable):
        hint = "put the key into one and give its name"
        raise LoadTestError(f"--api-key-env {variable}: no such environment variable; {hint}")
    os.environ[_CHOSEN_VARIABLE] = variable


def use_headers(lines: Sequence[str]) -> None:
    """Send these headers, ``NAME: VALUE`` each, with every request from now on.

    Raises ``LoadTestError`` for a line that is no header, without repeating it: it may hold a
    secret.
    """
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not (colon and _NAME.fullmatch(name) and value.strip() and _is_plain(value)):
            hint = "write 'NAME: VALUE', such as 'X-Team: a'"
            raise LoadTestError(f"--header number {number} is no header; {hint}")
    os.environ[_HEADERS_VARIABLE] = "\n".join(lines)


def key_variable() -> str:
    """Return the name of the environment variable for the API key, set or not."""
    return os.environ.get(_CHOSEN_VARIABLE) or KEY_VARIABLE


def sent_headers() -> dict[str, str]:
    """Return the key as a bearer token, and the extra headers; never store them."""
    key, extra = os.environ.get(key_variable()), _extra_headers()
    if key and "authorization" not in (name.lower() for name in extra):
        return {"Authorization": f"Bearer {key}", **extra}
    return extra


def shown_headers() -> dict[str, str]:
    """Return the extra headers, the values of secret ones hidden, so that they can be stored."""
    headers = _extra_headers().items()
    return {name: _HIDDEN if _SECRET.search(name) else value for name, value in headers}


def redact(text: str) -> str:
    """Return a server's text on one line, with every secret in it hidden."""
    for secret in _secrets():
        text = text.replace(secret, _HIDDEN)
    return " ".join(text.split())


def _extra_headers() -> dict[str, str]:
    lines = os.environ.get(_HEADERS_VARIABLE, "").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def _secrets() -> list[str]:
    """Return whole values, then the last word of each: ``Bearer KEY`` may come back as ``KEY``."""
    values = [value for name, value in _extra_headers().items() if _SECRET.search(name)]
    values += filter(None, [os.environ.get(key_variable())])
    return [*values, *(value.split()[-1] for value in values)]


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()
