"""The command line in this process: what it wrote, and its exit code."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from typer.main import get_command

from servetwin.app import cli

SERVER = ("--profile", "base-cpu")
"""A server for a command that needs one."""


class Done(NamedTuple):
    code: int
    out: str
    err: str


def with_server(*options: object) -> tuple[object, ...]:
    """Options with a server, where they name none."""
    named = {"--profile", "--model", "--scenario", "--gpu"} & set(map(str, options))
    return options if named else (*SERVER, *options)


def over(arguments: Sequence[object], options: Sequence[object]) -> list[object]:
    """Arguments with options, each of which takes the place of the same one with its value."""
    names = {word for word in options if str(word).startswith("--")}
    before = ("", *arguments)
    kept = [word for was, word in zip(before, arguments, strict=False) if not {was, word} & names]
    return [*kept, *options]


@cache
def commands() -> Any:
    """All commands, built once, as in every process of the command line."""
    return get_command(cli.app)


def servetwin(*arguments: object) -> Done:
    """Run a command; an error that would be a traceback is one here."""
    argv = ["servetwin", *map(str, arguments)]
    with (
        patch.object(sys, "argv", argv),
        patch.object(cli, "app", commands()),
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def refused(*arguments: object) -> str:
    """The one line with which a command refuses its input."""
    done = servetwin(*arguments)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    return line
