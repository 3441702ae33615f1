"""A command whose ``--help`` says of an option what the scenario says of its setting."""

from typing import Any

from typer.core import TyperCommand


class DescribedCommand(TyperCommand):
    """Fills in the help of settings, ``{policies.kv}``, only when it is shown: it takes imports."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the command."""
        describe(self)
        super().format_help(ctx, formatter)


def describe(command: Any) -> None:
    """Put the help of settings in the place of their keys, in every option of ``command``."""
    from app.scenario.setting_docs import filled_help

    for parameter in command.params:
        parameter.help = filled_help(parameter.help or "")
