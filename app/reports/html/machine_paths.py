"""Texts without the paths of a machine: the name of a file is enough, and folders name people."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from servetwin.sim.records.run import Run

_PART = r"""[^\s/\\:;,'"()<>|]+"""
_ABSOLUTE = re.compile(
    rf"(?:file://|(?<![\w.:/\\\]~-]))(?:~|[A-Za-z]:)?[/\\](?!v\d+/|api/)(?:{_PART}[/\\]+)+({_PART})"
)
"""A file in a folder, within a sentence. Paths of HTTP interfaces are no files."""
_WHOLE = re.compile(r"""(?:~|[A-Za-z]:)?[/\\](?!v\d+/|api/)[^:;,'"()<>|\n]*\.[A-Za-z]\w*""")
"""A text that is one file, perhaps with blanks in its path."""


def without_paths(value: Any) -> Any:
    """Return a text with absolute paths cut to their last part; so in lists and mappings too."""
    if isinstance(value, str):
        return _without(value)
    if isinstance(value, Mapping):
        return {without_paths(key): without_paths(of) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(one) for one in value]
    return value


def run_without_paths(run: Run) -> Run:
    """Return a run to be shown to others, who have another machine."""
    shown = {part: without_paths(getattr(run, part)) for part in ("scenario", "meta", "extra")}
    return replace(run, **shown)


def _without(text: str) -> str:
    if _WHOLE.fullmatch(text):
        return re.split(r"[/\\]", text)[-1]
    return _ABSOLUTE.sub(r"\1", text)
