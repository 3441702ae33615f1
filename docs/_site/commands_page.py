"""The reference of the command line: every command, its options, its exit codes."""

import inspect
from itertools import groupby
from typing import Any

from markdown_table import table
from typer.main import get_command

from servetwin.app.cli import EXIT_CODES, app
from servetwin.app.command import default_words, describe, panel_of, value_words

_INTRODUCTION = """# Command line

`servetwin COMMAND --help` says the same in the terminal. Results go to stdout, as one JSON object
with `--json`; notes, warnings and progress go to stderr.
"""
_HEADS = ("option", "value", "default", "meaning")


def commands_page() -> str:
    """Return the page as Markdown."""
    line: Any = get_command(app)
    rows = [(f"`servetwin {name}`", does) for name, does in line.summaries.items()]
    options = [
        (f"`{each.opts[0]}`", "", "", each.help)
        for each in line.params
        if each.param_type_name == "option" and each.name != "help"
    ]
    parts = ["## servetwin", line.help, table(("command", "does"), rows), table(_HEADS, options)]
    sections = [_section(name, command) for name, command in line.commands.items()]
    return "\n".join([_INTRODUCTION, _joined(parts), *sections, _exit_codes()])


def _section(name: str, command: Any) -> str:
    describe(command)
    usage = command.usage + " [OPTIONS]" * bool(command.options)
    parts = [f"## servetwin {name}", f"```text\n{usage}\n```", command.help or ""]
    if command.arguments:
        rows = [(f"`{a.metavar or a.name.upper()}`", a.help) for a in command.arguments]
        parts.append(table(("argument", "meaning"), rows))
    hints = inspect.signature(command.callback).parameters
    for panel, options in groupby(command.options, key=panel_of):
        heads = (f"{panel} option".strip(), *_HEADS[1:])
        parts.append(table(heads, [_row(o, hints[o.name].annotation) for o in options]))
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _row(option: Any, hint: Any) -> tuple[str, str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = option.metavar or value_words(hint)
    default = "required" if option.required else _code(default_words(option))
    return names, _code(value), default, option.help or ""


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _exit_codes() -> str:
    text = "What went wrong is one line on stderr, never a traceback (but with `--debug`)."
    return f"## Exit codes\n\n{text}\n\n{table(('code', 'when'), EXIT_CODES.items())}"
