"""Keys and extra headers: in the environment, in what is sent, and nowhere else.

They live in the environment so that the processes of a load test inherit them and nothing that is
stored or printed can hold them. ``redact`` takes them out of what a server says.
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

    Raises ``LoadTestError`` where there is none.
    """
    if not os.environ.get(variable):
        raise LoadTestError(
            f"--api-key-env {variable}: no such environment variable; "
            f"put the key into one and give its name"
        )
    os.environ[_CHOSEN_VARIABLE] = variable


def use_headers(lines: Sequence[str]) -> None:
    """Send these headers, ``NAME: VALUE`` each, with every request from now on.

    Raises ``LoadTestError`` for what is none, without repeating it: it may hold a secret.
    """
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not (colon and _NAME.fullmatch(name) and value.strip() and _is_plain(value)):
            raise LoadTestError(
                f"--header number {number} is no header; write 'NAME: VALUE', such as 'X-Team: a'"
            )
    os.environ[_HEADERS_VARIABLE] = "\n".join(lines)


def key_variable() -> str:
    """The environment variable that holds the API key, if there is one."""
    return os.environ.get(_CHOSEN_VARIABLE) or KEY_VARIABLE


def sent_headers() -> dict[str, str]:
    """The key as a bearer token, then the extra headers; never to be stored."""
    key, extra = os.environ.get(key_variable()), _extra_headers()
    if key and "authorization" not in (name.lower() for name in extra):
        return {"Authorization": f"Bearer {key}", **extra}
    return extra


def shown_headers() -> dict[str, str]:
    """The extra headers as they may be stored: the values of secret ones are hidden."""
    return {
        name: _HIDDEN if _SECRET.search(name) else value for name, value in _extra_headers().items()
    }


def redact(text: str) -> str:
    """One line of the server's text, without the secrets should it repeat them."""
    for secret in _secrets():
        text = text.replace(secret, _HIDDEN)
    return " ".join(text.split())


def _extra_headers() -> dict[str, str]:
    lines = os.environ.get(_HEADERS_VARIABLE, "").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def _secrets() -> list[str]:
    """Whole values first, then the words in them: ``Bearer KEY`` may come back as ``KEY``."""
    values = [value for name, value in _extra_headers().items() if _SECRET.search(name)]
    values += filter(None, [os.environ.get(key_variable())])
    return [*values, *(value.split()[-1] for value in values)]


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()
