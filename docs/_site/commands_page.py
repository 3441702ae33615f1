"""The reference of the command line: every command, its options, its exit codes."""

import inspect
from enum import Enum
from itertools import groupby
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from markdown_table import table
from typer.main import get_command

from servetwin.app.cli import app
from servetwin.app.command import describe
from servetwin.workloads import errors

_INTRODUCTION = """# Command line

`servetwin COMMAND --help` says the same in the terminal. Results go to stdout, as one JSON object
with `--json`; notes, warnings and progress go to stderr.
"""
_WORDS = {bool: "", int: "whole number", float: "number", str: "text", Path: "path"}
_CODES = (
    ("0", "done"),
    ("1", "the verdict failed (`verify`, `demo`, `selftest`, `workload stats --against`)"),
    ("2", "an option is unknown, missing or impossible"),
)


def commands_page() -> str:
    """Return the page as Markdown."""
    line: Any = get_command(app)
    sections = [_section(f"servetwin {name}", command) for name, command in line.commands.items()]
    return "\n".join([_INTRODUCTION, _section("servetwin", line), *sections, _exit_codes()])


def _section(name: str, command: Any) -> str:
    describe(command)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *map(_usage, arguments), *["[OPTIONS]"] * bool(_options(command))])
    parts = [f"## {name}", f"```text\n{usage}\n```", command.help or ""]
    if subcommands := getattr(command, "commands", None):
        rows = [(f"`{name} {sub}`", does) for sub, does in subcommands.summaries.items()]
        parts.append(table(("command", "does"), rows))
    if arguments:
        parts.append(table(("argument", "meaning"), [(f"`{_name(a)}`", a.help) for a in arguments]))
    hints = inspect.signature(command.callback).parameters if command.callback else {}
    for panel, options in groupby(_options(command), key=_panel):
        heads = (f"{panel} option".strip(), "value", "default", "meaning")
        parts.append(table(heads, [_row(o, hints[o.name].annotation) for o in options]))
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _options(command: Any) -> list[Any]:
    """Return the options in order of their panels; the command's own first."""
    found = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    panels = list(dict.fromkeys(map(_panel, found)))
    return sorted(found, key=lambda option: (bool(_panel(option)), panels.index(_panel(option))))


def _panel(option: Any) -> str:
    return option.rich_help_panel or ""


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _usage(argument: Any) -> str:
    name = _name(argument)
    if argument.nargs == -1 and not name.endswith("..."):
        name += "..."
    return name if argument.required else f"[{name}]"


def _row(option: Any, hint: Any) -> tuple[str, str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = f"`{option.metavar}`" if option.metavar else _value(hint)
    return names, value, _default(option), option.help or ""


def _value(hint: Any) -> str:
    """Return what an option of this type takes; of ``list[int] | None``, a whole number."""
    if get_origin(hint) is Annotated:
        return _value(get_args(hint)[0])
    inner = [kind for kind in get_args(hint) if kind is not NoneType]
    if inner:
        return " ".join(map(_value, inner))
    if issubclass(hint, Enum):
        return " or ".join(f"`{choice.value}`" for choice in hint)
    return _WORDS[hint]


def _default(option: Any) -> str:
    if option.required:
        return "required"
    default = option.default
    if default is None or default is False or callable(default):
        return ""
    return f"`{default.value if isinstance(default, Enum) else default}`"


def _exit_codes() -> str:
    kinds = [
        error
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.ServetwinError)
    ]
    leaves = [error for error in kinds if error is not errors.ServetwinError]
    rows = [*_CODES, *((str(e.exit_code), _first_line(e.__doc__)) for e in leaves)]
    rows.sort(key=lambda row: int(row[0]))
    text = "What went wrong is one line on stderr, never a traceback."
    return f"## Exit codes\n\n{text}\n\n{table(('code', 'when'), rows)}"


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]
