"""Fields of the user's own in every body: any JSON, and the sampling parameters by name."""

import json
from collections.abc import Mapping
from math import isnan
from pathlib import Path

from servetwin.workloads.errors import LoadTestError, did_you_mean, os_errors
from servetwin.workloads.program.key_values import key_values, number_in

# Fields that the load test sets itself, and the option that decides them.
_OWN = {
    "model": "--model",
    "stream": "--no-stream",
    **dict.fromkeys(("prompt", "messages", "input"), "--trace"),
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), "--output-tokens"),
    **dict.fromkeys(("min_tokens", "ignore_eos"), "--no-force-length"),
}
_LARGEST_BYTES = 1 << 20

SAMPLING: Mapping[str, type] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "seed": int,
    "presence_penalty": float,
    "frequency_penalty": float,
    "repetition_penalty": float,
}
_SAMPLING_FORM = "KEY=VALUE; write for example temperature=0.7,top_p=0.9"


def parse_extra_body(text: str) -> dict[str, object]:
    """Read a JSON object, or ``@FILE`` with one. Raises ``LoadTestError``."""
    where = f"--extra-body {text}" if text.startswith("@") else "--extra-body"
    try:
        fields = json.loads(_read(text))
    except (ValueError, RecursionError) as error:
        raise LoadTestError(f"{where}: not JSON ({error}); {_EXTRA_FORM}") from None
    if not isinstance(fields, dict):
        raise LoadTestError(f"{where}: JSON, but no object; {_EXTRA_FORM}")
    for name, option in _OWN.items():
        if name in fields:
            raise LoadTestError(f"{where}: the load test sets {name!r} itself; see {option}")
    return fields


_EXTRA_FORM = """write for example '{"top_p": 0.9}', or @FILE"""


def _read(text: str) -> str:
    if not text.startswith("@"):
        return text
    unread = os_errors(LoadTestError, f"--extra-body {text}: cannot be read")
    with unread, Path(text[1:]).open("rb") as file:
        data = file.read(_LARGEST_BYTES + 1)
    if len(data) > _LARGEST_BYTES:
        raise LoadTestError(f"--extra-body {text}: longer than {_LARGEST_BYTES} bytes")
    return data.decode("utf-8-sig")


def parse_sampling(text: str) -> dict[str, float]:
    """Read ``KEY=VALUE,...`` of ``SAMPLING``. Raises ``LoadTestError`` naming what is wrong."""
    sampling: dict[str, float] = {}
    for name, value in key_values(text, "--sampling", LoadTestError, _SAMPLING_FORM).items():
        if name not in SAMPLING:
            hint = did_you_mean(name, SAMPLING)
            raise LoadTestError(f"--sampling: unknown {name!r}; {hint}; others: --extra-body")
        kind = SAMPLING[name]
        number = number_in(value)
        if isnan(number) or (kind is int and not number.is_integer()):
            noun = "a whole number" if kind is int else "a number"
            raise LoadTestError(f"--sampling: {name}={value}: not {noun}")
        sampling[name] = kind(number)
    return sampling
