"""The command that generates workloads: a named one sets the options that are not given."""

from collections.abc import Sequence
from typing import Any

from app.commands.described import DescribedCommand


class GeneratorCommand(DescribedCommand):
    """Takes the options of ``--named NAME`` as defaults: what is given on the line wins."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments over the options of the named workload, if there is one."""
        if name := _value_of("--named", args):
            from workloads.scenarios.named import find_named

            settings = find_named(name).options
            ctx.default_map = {
                each.name: settings[option]
                for each in self.params
                for option in (option.removeprefix("--") for option in each.opts)
                if option in settings
            }
        return super().parse_args(ctx, args)


def _value_of(option: str, args: Sequence[str]) -> str:
    for argument, following in zip(args, [*args[1:], ""], strict=True):
        if argument == option:
            return following
        if argument.startswith(f"{option}="):
            return argument.removeprefix(f"{option}=")
    return ""
