"""A command: how it reads its arguments, what its help shows, what would be right where it fails.

``--help`` shows the options that most people need, ``--help-all`` every option by group. Help texts
of settings, ``{policies.kv}``, are filled in when they are shown: that takes imports.
"""

import inspect
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import groupby, pairwise
from math import isfinite
from pathlib import Path
from textwrap import indent, wrap
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

# Of click, or of the copy of click that newer versions of typer have.
UsageError: Any = typer.BadParameter.__base__
# Of a help text, and of the names in it.
WIDTH, COLUMN = 100, 30
_TOO_MANY = "Got an unexpected extra argument; a header with spaces needs quotes"
# Makes the value of a parameter of one of these kinds from its texts.
_PLAIN: Mapping[Any, Any] = {
    (str,): str, (str | None,): str, (Path,): Path, (Path | None,): Path, (list[str] | None,): list,
}  # fmt: skip
_VALUES = {bool: "", int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}

Commands = Mapping[str, "Command"]


class Command(TyperCommand):
    """A command of one word or two; ``essential`` are the options that ``--help`` shows."""

    essential: tuple[str, ...] = ()
    all: Commands = MappingProxyType({})
    """Every command of the program, and their ``summaries``."""

    @property
    def arguments(self) -> list[Any]:
        """The arguments that stand alone."""
        return [each for each in self.params if each.param_type_name == "argument"]

    @property
    def options(self) -> list[Any]:
        """The options in order of their groups; those of no group come first."""
        options = [p for p in self.params if p.param_type_name == "option" and p.name != "help"]
        panels = list(dict.fromkeys(map(panel_of, options)))
        return sorted(
            options, key=lambda each: (panel_of(each) != "", panels.index(panel_of(each)))
        )

    @property
    def usage(self) -> str:
        """The command with its arguments."""
        return " ".join([f"servetwin {self.name}", *map(_usage, self.arguments)])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; one too many beside a header may be its value and is not repeated.

        An option whose metavar is in brackets, ``[HOST:PORT]``, may stand alone: it is empty then.
        """
        self.as_given(self, ctx)
        has_header = any(argument.startswith("--header") for argument in args)
        try:
            args = _with_empty_values(args, self.params)
            if not ctx.resilient_parsing:
                self._require_values(ctx, args)
                self._require_once(ctx, args)
            return super().parse_args(ctx, args)
        except UsageError as error:
            if has_header and "extra argument" in error.message:
                error.message = _TOO_MANY
            right = self._what_is_right(getattr(error, "option_name", ""))
            if right and type(error).__name__ == "NoSuchOption":
                error.message, error.possibilities = right, None
            raise

    @staticmethod
    def as_given(command: Any, context: Any) -> None:
        """Take plain texts, and what is not given, as they are: typer's validators take time."""
        hints = inspect.signature(command.callback).parameters
        kinds = {name: get_args(hint.annotation)[:1] for name, hint in hints.items()}
        for each in command.get_params(context):
            made = _PLAIN.get(kinds.get(each.name))
            if not isinstance(each.process_value, partial):
                each.process_value = partial(_processed, each, made, each.process_value)

    def help_text(self, *, everything: bool = False) -> str:
        """Return the usage, what the command does, its arguments and its options."""
        describe(self)
        hints = inspect.signature(self.callback).parameters if self.callback else {}
        parts = [f"Usage: {self.usage} [OPTIONS]", indent(inspect.cleandoc(self.help or ""), "  ")]
        if self.arguments:
            parts.append(section("Arguments", ((_usage(a), a.help or "") for a in self.arguments)))
        shown = [o for o in self.options if not self.essential or o.opts[0] in self.essential]
        groups = groupby(self.options, panel_of) if everything else [("", shown)]
        for panel, options in groups:
            rows = [(_names(o, hints[o.name].annotation), _meaning(o)) for o in options]
            parts.append(section(f"{panel} options".strip().capitalize(), rows))
        if not everything and len(shown) < len(self.options):
            parts.append(f"--help-all shows all {len(self.options)} options.")
        if modes := family(self.all, self.name or ""):
            parts.append(section("See also", ((f"servetwin {n}", help) for n, help in modes)))
        return "\n\n".join(part for part in parts if part.strip())

    def complete_second_words(self) -> None:
        """Let a shell complete the second word of a command that begins like this one."""
        words = {name.partition(" ")[2]: help for name, help in family(self.all, self.name or "")}
        for argument in self.arguments[: len(words)]:
            values = argument.shell_complete
            argument.shell_complete = lambda ctx, incomplete, values=values: [
                *completions(words, incomplete),
                *values(ctx, incomplete),
            ]

    def _require_values(self, ctx: Any, args: list[str]) -> None:
        """Raise ``UsageError`` for an option without its value, which the next one would become."""
        options = {name: each for each in self.options for name in each.opts}
        for argument, after in pairwise(args):
            option = options.get(argument)
            if option is not None and not option.is_flag and after.partition("=")[0] in options:
                right = f"{argument} {option.metavar or 'VALUE'}"
                raise UsageError(f"{argument}: no value before {after}; write {right}", ctx)

    def _require_once(self, ctx: Any, args: list[str]) -> None:
        """Raise ``UsageError`` for an option of several parts, or of opposites, given again.

        The last one alone would count; of a plain value, which a script may override, it does.
        """
        values, _, order = self.make_parser(ctx).parse_args(args=[*args])
        for option, count in Counter(order).items():
            has_parts = "=" in str(values[option.name])
            if count > 1 and not option.multiple and (has_parts or option.secondary_opts):
                parts = ", its parts separated by commas" if has_parts else ""
                raise UsageError(f"{option.opts[0]}: given {count} times; give it once{parts}", ctx)

    def _what_is_right(self, option: str) -> str:
        """Return which command has an option that this one lacks; nothing where none has."""
        first = (self.name or "").split()[0]
        near = [name for name in self.all if name.split()[0] == first and name != self.name]
        for name in near:
            arguments = {each.name for each in self.all[name].arguments}
            if option.lstrip("-") in {name.partition(" ")[2], *arguments}:
                return f"{option}: no option; write {self.all[name].usage}"
        for names in (near, self.all):
            owners = [n for n in names if any(option in o.opts for o in self.all[n].options)]
            if owners:
                listed = " or ".join(f"servetwin {name}" for name in owners[:3])
                return f"{option}: servetwin {self.name} has no such option; {listed} has it"
        return ""


def print_result(as_json: bool, record: Any, lines: Iterable[str]) -> None:
    """Print a result as one JSON object, or as lines of text."""
    typer.echo(json.dumps(_finite(record)) if as_json else "\n".join(lines))


def _finite(value: Any) -> Any:
    """Return a value of JSON with None for numbers without end."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def family(commands: Commands, name: str) -> list[tuple[str, str]]:
    """Return the commands of two words that begin with ``name``, and what they do."""
    summaries: Mapping[str, str] = getattr(commands, "summaries", {})
    return [(each, help) for each, help in summaries.items() if each.startswith(f"{name} ")]


def completions(words: Mapping[str, str], incomplete: str) -> list[Any]:
    """Return words with their meanings, as the completion of a shell takes them."""
    package = UsageError.__module__.rpartition(".")[0]
    item = import_module(f"{package}.shell_completion").CompletionItem
    return [item(w, help=help) for w, help in words.items() if w.startswith(incomplete)]


def describe(command: Any) -> None:
    """Put the help of settings in the place of their keys, in every option of ``command``."""
    from servetwin.app.scenario.setting_docs import filled_help

    for parameter in command.params:
        parameter.help = filled_help(parameter.help or "")


def section(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return names and their meanings below a title."""
    lines = [f"{title}:"]
    for name, meaning in rows:
        first, *more = wrap(meaning, WIDTH - COLUMN, break_on_hyphens=False) or [""]
        if len(name) > COLUMN - 4:
            lines.append(f"  {name}")
            name = ""
        lines.append(f"  {name:<{COLUMN - 2}}{first}".rstrip())
        lines += [" " * COLUMN + line for line in more]
    return "\n".join(lines)


def panel_of(option: Any) -> str:
    """Return the heading of the group of an option; of none, nothing."""
    return option.rich_help_panel or ""


def value_words(hint: Any) -> str:
    """Return what an option of this type takes; of ``list[int] | None``, an integer."""
    if get_origin(hint) is Annotated:
        return value_words(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return "|".join(get_args(hint))
    inner = [kind for kind in get_args(hint) if kind not in (NoneType, Ellipsis)]
    return " ".join(map(value_words, inner)) if inner else _VALUES[hint]


def default_words(option: Any) -> str:
    """Return the default of an option as it would be written; nothing where it has none."""
    default = option.default
    if default is None or default is False or default is True or callable(default):
        return ""
    return str(default)


def _names(option: Any, hint: Any) -> str:
    names = ", ".join((*option.opts, *option.secondary_opts))
    return f"{names} {option.metavar or value_words(hint)}".rstrip()


def _meaning(option: Any) -> str:
    default = "required" if option.required else default_words(option)
    note = f"[{'default: ' if not option.required else ''}{default}]" if default else ""
    return f"{option.help or ''} {note}".strip()


def _usage(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    if argument.nargs == -1 and not name.strip("[]").endswith("..."):
        name += "..."
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _with_empty_values(args: Sequence[str], parameters: Sequence[Any]) -> list[str]:
    """Return the arguments with an empty value for each option that stands alone and may."""
    options = (each for each in parameters if each.param_type_name == "option")
    may = {name for each in options if (each.metavar or "")[:1] == "[" for name in each.opts}
    following = [*args[1:], "--"][: len(args)]
    return [
        f"{argument}=" if argument in may and after.startswith("-") else argument
        for argument, after in zip(args, following, strict=False)
    ]


def _processed(parameter: Any, made: Any, process: Any, context: Any, value: Any) -> Any:
    is_own = value is parameter.default and isinstance(value, tuple(_VALUES))
    if (value is None or is_own) and not parameter.required:
        return value
    texts = [value] if isinstance(value, str) else value
    if made and texts and all(isinstance(text, str) and text.isascii() for text in texts):
        return made(value)
    return process(context, value)
