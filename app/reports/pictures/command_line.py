"""The command that drew a picture, to draw it again: without places of this machine."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePath

_WITH_VALUE = ("--plot", "--chart", "--out")
_ALONE = ("--dark", "--overwrite", "--json")


def command_line(arguments: Sequence[str] | None = None) -> str:
    """Return the command of this process, or of ``arguments``, without what only says where to
    write; of a path stands the file alone."""
    given = sys.argv[1:] if arguments is None else arguments
    return shlex.join(["servetwin", *_kept(given)])


def _kept(arguments: Sequence[str]) -> Iterator[str]:
    rest = iter(arguments)
    for argument in rest:
        option, has_value, value = argument.partition("=")
        if option in _WITH_VALUE:
            if not has_value:
                next(rest, None)
        elif option not in _ALONE:
            is_set = option.startswith("--") and has_value
            yield f"{option}={_placeless(value)}" if is_set else _placeless(argument)


def _placeless(text: str) -> str:
    return PurePath(text).name if text.startswith(("/", "~", "./", "../")) else text
