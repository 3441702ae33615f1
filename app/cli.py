"""The ``servetwin`` command line: its commands, each imported when it is used."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from servetwin.app.command import Command, UsageError, completions, section
from servetwin.app.last_net import is_out_of_memory, last_words
from servetwin.core_cache import PURE, CompiledCore

_TEXTS = Path(__file__).with_name("commands")
# The function behind each command in ``app.commands``, and what the command does.
COMMANDS: Mapping[str, tuple[str, str]] = json.loads((_TEXTS / "commands.json").read_text())
# Of every command.
EXIT_CODES: Mapping[str, str] = json.loads((_TEXTS / "exit_codes.json").read_text())


class LazyCommands(Mapping[str, Command]):
    """The commands by name, built when they are wanted."""

    def __init__(self) -> None:
        self.summaries = {name: summary for name, (_, summary) in COMMANDS.items()}
        self._built: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._built:
            module, _, function = COMMANDS[name][0].partition(":")
            command = getattr(import_module(f"servetwin.app.commands.{module}"), function)
            self._built[name] = _built(name, command)
            self._built[name].all = self
            self._built[name].complete_second_words()
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _built(name: str, function: Any) -> Command:
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=getattr(function, "command_class", None) or Command)(function)
    command: Any = typer.main.get_command(alone)
    command.essential = getattr(function, "essential", ())
    return command  # type: ignore[no-any-return]


class CommandLine(TyperGroup):
    """Finds a command by one word or by two, ``loadtest import``."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = LazyCommands()
        self.summaries: dict[str, str] = self.commands.summaries

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options of the program; print the help of a command, which runs nothing."""
        Command.as_given(self, ctx)
        flags = {"--help", "--help-all"} & set(args)
        if flags and not args[0].startswith("-"):
            _, command, _ = self.resolve_command(ctx, args)
            typer.echo(command.help_text(everything="--help-all" in flags))
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and what is left of the arguments."""
        for name, rest in ((" ".join(args[:2]), args[2:]), (args[0], args[1:])):
            if name in self.commands:
                return name, self.commands[name], rest
        ctx.meta["servetwin.first"] = args[0]
        if ctx.resilient_parsing:
            return None, None, args
        rows = [row for row in self.summaries.items() if row[0].startswith(f"{args[0]} ")]
        if rows and "--help" in args:
            typer.echo(section("Commands", ((f"servetwin {name}", help) for name, help in rows)))
            ctx.exit()
        if rows:
            listed = ", ".join(name for name, _ in rows)
            raise UsageError(f"{' '.join(args[:2])}: no command; {args[0]} has {listed}", ctx)
        near = get_close_matches(args[0], COMMANDS, 1)
        hint = f"did you mean {near[0]!r}?" if near else "servetwin --help lists all"
        raise UsageError(f"No such command {args[0]!r}; {hint}", ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the commands and what they do."""
        formatter.write(f"Usage: servetwin COMMAND [OPTIONS]\n\n  {self.help}\n\n")
        formatter.write(section("Commands", self.summaries.items()) + "\n\n")
        options: list[Any] = [p for p in self.params if p.param_type_name == "option"]
        formatter.write(section("Options", ((p.opts[0], p.help or "") for p in options)))
        formatter.write("\n\n" + section("Exit codes", EXIT_CODES.items()))
        formatter.write("\n\nservetwin COMMAND --help shows how a command is used.")

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the first word of a command, or the second one."""
        first = ctx.meta.get("servetwin.first", "")
        begun = f"{first} " if first else ""
        words = {
            name.removeprefix(begun).split()[0]: summary
            for name, summary in reversed(self.summaries.items())
            if name.startswith(begun)
        }
        return completions(words, incomplete)


app = typer.Typer(
    cls=CommandLine,
    help="A digital twin of an LLM server: predict what a policy will do, then confirm it live.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def servetwin(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Print the version, and whether its core is compiled.",
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error of servetwin itself.")
    ] = False,
) -> None:
    """Hold the options of the program itself."""


def main() -> None:
    """Run a command; what went wrong is one line on stderr, bad input exit code 2."""
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        message = error.format_message().replace("Value error, ", "")
        whole_help = "\n" in message
        _print_error(message if whole_help else f"servetwin: {message}")
        sys.exit(error.exit_code)
    except BaseException as error:
        if is_out_of_memory(error):  # an import may find none either
            sys.stderr.write("servetwin: out of memory; take a part of the input, or more memory\n")
            sys.exit(1)
        from servetwin.workloads.plugin_guard import plugin_error

        problem = plugin_error(error)
        if problem is not None:
            _print_error(f"servetwin: {problem}")
            sys.exit(problem.exit_code)
        if not isinstance(error, Exception) or sys.argv[1:2] == ["--debug"]:
            raise
        line, code = last_words(error, sys.argv[1:], version_line())
        _print_error(f"servetwin: {line}")
    sys.exit(code)


def version_line() -> str:
    """Return the name, the version, and whether the core is compiled."""
    from servetwin.workloads.program.package import own_version

    core = "compiled" if is_compiled() else f"pure Python{why_pure()}"
    return f"servetwin {own_version()} ({core})"


def is_compiled() -> bool:
    """Return whether Python took the compiled core (``compile_core.py``), not its sources."""
    from servetwin.policies import lockstep

    return not lockstep.__file__.endswith(".py")


def why_pure() -> str:
    """Return why a checkout runs its sources, to follow "pure Python"; nothing of a wheel."""
    if os.environ.get(PURE):
        return f": {PURE} is set"
    in_checkout = any(isinstance(finder, CompiledCore) for finder in sys.meta_path)
    return ": these sources are not compiled, `make core` does that" if in_checkout else ""


def _print_error(text: str) -> None:
    """Write to stderr, without secrets; what a file holds that no terminal prints is escaped."""
    from servetwin.loadtest.redaction import hide_secrets

    shown = (c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    typer.echo(hide_secrets("".join(shown)), err=True)


if __name__ == "__main__":
    main()
