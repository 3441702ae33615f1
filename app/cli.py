"""The ``servetwin`` command line. Heavy imports wait until a command needs them."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from servetwin.app.commands.calibrate import calibrate
from servetwin.app.commands.capacity import capacity
from servetwin.app.commands.compare import compare
from servetwin.app.commands.dashboard import dashboard
from servetwin.app.commands.demo import demo
from servetwin.app.commands.described import DescribedCommand
from servetwin.app.commands.explain import explain
from servetwin.app.commands.loadtest import loadtest
from servetwin.app.commands.loadtest_import import loadtest_import
from servetwin.app.commands.presets import presets
from servetwin.app.commands.profile_convert import profile_convert
from servetwin.app.commands.replay import replay
from servetwin.app.commands.report import report
from servetwin.app.commands.selftest import selftest
from servetwin.app.commands.serve import serve
from servetwin.app.commands.sweep import sweep
from servetwin.app.commands.techniques import techniques_app
from servetwin.app.commands.verify import verify
from servetwin.app.commands.workload import workload_app


class TwoWordCommands(TyperGroup):
    """Finds a command by two words, ``loadtest import``, where one stands for a command too."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and what is left of the arguments."""
        two_words = " ".join(args[:2])
        if two_words in self.commands:
            return two_words, self.commands[two_words], args[2:]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=TwoWordCommands,
    help="A digital twin of an LLM server: predict what a policy will do, then confirm it live.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(asked: bool) -> None:
    if asked:
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


for command in (
    demo, replay, serve, calibrate, loadtest, verify, compare, capacity, sweep, explain, report,
    dashboard, selftest, presets,
):  # fmt: skip
    app.command(cls=DescribedCommand)(command)
app.command("loadtest import", cls=DescribedCommand)(loadtest_import)
app.command("profile convert", cls=DescribedCommand)(profile_convert)
app.add_typer(workload_app, name="workload")
app.add_typer(techniques_app, name="techniques")


_UsageError: Any = typer.BadParameter.__base__


def main() -> None:
    """Run a command; what went wrong is one line on stderr, bad input exit code 2."""
    try:
        sys.exit(app(standalone_mode=False))
    except _UsageError as error:
        said = error.format_message()
        _say(said if "\n" in said else f"servetwin: {said}")  # the help of a group has many lines
        sys.exit(error.exit_code)
    except BaseException as error:
        from servetwin.workloads.plugins import plugin_error

        problem = plugin_error(error)
        if problem is None:
            raise
        _say(f"servetwin: {problem}")
        sys.exit(problem.exit_code)


def version_line() -> str:
    """Return the name, the version, and whether the core is compiled."""
    from servetwin.workloads.version import own_version

    return f"servetwin {own_version()} ({'compiled' if is_compiled() else 'pure Python'})"


def is_compiled() -> bool:
    """Return whether Python took the compiled core (``compile_core.py``), not its sources."""
    from servetwin.policies import lockstep

    return not lockstep.__file__.endswith(".py")


def _say(text: str) -> None:
    """Write to stderr, without secrets; bytes of a file that are no text become escapes."""
    from servetwin.loadtest.redaction import hide_secrets

    typer.echo(hide_secrets(text.encode(errors="backslashreplace").decode()), err=True)


if __name__ == "__main__":
    main()
