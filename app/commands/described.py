"""A command whose ``--help`` says of an option what the scenario says of its setting."""

from collections.abc import Sequence
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

_UsageError: Any = BadParameter.__base__
"""Of click, or of the copy of click that newer versions of typer have."""
_TOO_MANY = "Got an unexpected extra argument; a header with spaces wants quotes"


class DescribedCommand(TyperCommand):
    """Fills in the help of settings, ``{policies.kv}``, only when it is shown: it takes imports."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; one too many beside a header may be its value and is not repeated.

        An option whose metavar is in brackets, ``[HOST:PORT]``, may stand alone: it is empty then.
        """
        has_header = any(argument.startswith("--header") for argument in args)
        try:
            return super().parse_args(ctx, _with_empty_values(args, self.params))
        except _UsageError as error:
            if has_header and "extra argument" in error.message:
                error.message = _TOO_MANY
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the command."""
        describe(self)
        super().format_help(ctx, formatter)


class DescribedGroup(TyperGroup):
    """A group of commands with options of its own: as those of a ``DescribedCommand``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; an option whose metavar is in brackets may be without a value."""
        return super().parse_args(ctx, _with_empty_values(args, self.params))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group."""
        describe(self)
        super().format_help(ctx, formatter)


def _may_stand_alone(parameter: Any) -> bool:
    metavar: str = parameter.metavar or ""
    return parameter.param_type_name == "option" and metavar.startswith("[")


def _with_empty_values(args: Sequence[str], parameters: Sequence[Any]) -> list[str]:
    """Return the arguments with an empty value for each option that stands alone and may."""
    alone = {name for each in parameters if _may_stand_alone(each) for name in each.opts}
    following = [*args[1:], "--"][: len(args)]
    return [
        f"{argument}=" if argument in alone and after.startswith("-") else argument
        for argument, after in zip(args, following, strict=False)
    ]


def describe(command: Any) -> None:
    """Put the help of settings in the place of their keys, in every option of ``command``."""
    from servetwin.app.scenario.setting_docs import filled_help

    for parameter in command.params:
        parameter.help = filled_help(parameter.help or "")
