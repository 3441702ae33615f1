"""The ``servetwin`` command line: its commands, each imported when it is used."""

import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from servetwin.app.command import Command, UsageError, completions, section

COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo:demo", "Serve, calibrate, predict, load-test and judge two policies here."),
    "replay": ("replay:replay", "Simulate a trace and print TTFT, TPOT and throughput."),
    "replay compare": ("replay:replay_compare", "Simulate two policies over the same seeds."),
    "replay stream": ("replay_stream:replay_stream", "Simulate a trace too long for the memory."),
    "serve": ("serve:serve", "Serve the bundled engine, a simulated one or a mock."),
    "calibrate": ("calibrate:calibrate", "Measure an engine and write its profile."),
    "loadtest": ("loadtest:loadtest", "Send a load to an endpoint and report what clients see."),
    "loadtest import": (
        "loadtest_import:loadtest_import",
        "Make a run folder of what another tool recorded.",
    ),
    "verify": ("verify:verify", "Forecast a trace, load-test the engine, judge the forecast."),
    "compare": ("compare:compare", "Say whether runs are worse than a baseline of the same load."),
    "capacity": ("capacity:capacity", "Find the highest load, or the fewest replicas, for an SLO."),
    "sweep": ("sweep:sweep", "Simulate a trace at every point of a grid; keep the frontier."),
    "explain": ("explain:explain", "Split the latency of a request into its causes."),
    "report": ("report:report", "Write runs, side by side, as one HTML file."),
    "dashboard": ("dashboard:dashboard", "Open the what-if dashboard in a browser."),
    "selftest": ("selftest:selftest", "Compare the simulator with queueing theory."),
    "presets": ("presets:presets", "List the known servers that --preset imitates."),
    "profile convert": ("profile_convert:profile_convert", "Make a profile of tables of times."),
    "workload stats": ("workload:stats", "Print arrivals, lengths and prefix hits of a trace."),
    "workload named": ("workload:named", "List the workloads of workload generate --named."),
    "workload generate": ("workload:generate", "Write a seeded synthetic trace."),
    "workload convert": ("workload:convert", "Write a trace, or a part of it, in our own format."),
    "techniques": ("techniques:techniques", "Compare a load with and without each technique."),
    "techniques table": ("techniques:table", "Print a published table beside our figures."),
    "techniques list": ("techniques:list_techniques", "List every technique, formula and source."),
    "techniques intensity": ("techniques:intensity", "Print FLOPs per element of each product."),
    "techniques formats": ("techniques:formats", "List number formats: bits, noise, quality."),
    "techniques memory": ("techniques:memory", "Print weights and KV per token of each model."),
    "techniques latency": ("techniques:latency", "Print a decode step as memory over bandwidth."),
}
"""The function behind each command in ``app.commands``, and what the command does."""


class LazyCommands(Mapping[str, Command]):
    """The commands by name, built when they are wanted."""

    def __init__(self) -> None:
        self.summaries = {name: summary for name, (_, summary) in COMMANDS.items()}
        self._built: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._built:
            module, _, function = COMMANDS[name][0].partition(":")
            found = getattr(import_module(f"servetwin.app.commands.{module}"), function)
            self._built[name] = _built(name, found)
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
) -> None:
    """Hold the options of the program itself."""


def main() -> None:
    """Run a command; what went wrong is one line on stderr, bad input exit code 2."""
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        message = error.format_message()
        whole_help = "\n" in message
        _print_error(message if whole_help else f"servetwin: {message}")
        sys.exit(error.exit_code)
    except BaseException as error:
        from servetwin.workloads.plugins import plugin_error

        problem = plugin_error(error)
        if problem is None:
            raise
        _print_error(f"servetwin: {problem}")
        sys.exit(problem.exit_code)
    sys.exit(code)


def version_line() -> str:
    """Return the name, the version, and whether the core is compiled."""
    from servetwin.workloads.program.version import own_version

    return f"servetwin {own_version()} ({'compiled' if is_compiled() else 'pure Python'})"


def is_compiled() -> bool:
    """Return whether Python took the compiled core (``compile_core.py``), not its sources."""
    from servetwin.policies import lockstep

    return not lockstep.__file__.endswith(".py")


def _print_error(text: str) -> None:
    """Write to stderr, without secrets; bytes of a file that are no text become escapes."""
    from servetwin.loadtest.redaction import hide_secrets

    typer.echo(hide_secrets(text.encode(errors="backslashreplace").decode()), err=True)


if __name__ == "__main__":
    main()
