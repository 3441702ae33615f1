"""Versions of servers: their order, and what a file says of each range of them."""

import re
from collections.abc import Sequence
from typing import Any

NEWEST = 1 << 30


def version_numbers(version: str | None) -> tuple[int, ...]:
    """Return the first three numbers of a version, to compare; none, or a build, is the newest."""
    if version is None or not version.removeprefix("v")[:1].isdigit():
        return (NEWEST,)
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def of_version(entries: Sequence[dict[str, Any]], version: str | None) -> dict[str, Any]:
    """Return the first entry whose ``until`` is later than a version; the last one has none."""
    numbers = version_numbers(version)
    return next(one for one in entries if "until" not in one or numbers < tuple(one["until"]))
