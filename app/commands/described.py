"""A command whose ``--help`` says of an option what the scenario says of its setting."""

from typing import Any

from typer import BadParameter
from typer.core import TyperCommand

_UsageError: Any = BadParameter.__base__
"""Of click, or of the copy of click that newer versions of typer have."""
_TOO_MANY = "Got an unexpected extra argument; a header with spaces wants quotes"


class DescribedCommand(TyperCommand):
    """Fills in the help of settings, ``{policies.kv}``, only when it is shown: it takes imports."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; one too many beside a header may be its value and is not repeated."""
        has_header = any(argument.startswith("--header") for argument in args)
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            if has_header and "extra argument" in error.message:
                error.message = _TOO_MANY
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the command."""
        describe(self)
        super().format_help(ctx, formatter)


def describe(command: Any) -> None:
    """Put the help of settings in the place of their keys, in every option of ``command``."""
    from app.scenario.setting_docs import filled_help

    for parameter in command.params:
        parameter.help = filled_help(parameter.help or "")
