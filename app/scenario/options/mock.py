"""Options of ``servetwin serve --mock``."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from typer import Option

from servetwin.workloads.errors import MockError

if TYPE_CHECKING:
    from servetwin.loadtest.mock.plan import MockPlan

_ALSO = ("model", "host", "port")
"""Options that serve a mock as well as an engine."""


@dataclass(frozen=True, slots=True)
class MockOptions:
    """A server that sends streams by plan; ``serve`` sets ``model``."""

    PANEL: ClassVar = "Mock"

    mock: Annotated[bool, Option("--mock")] = False
    """Serve streams with set times and faults."""
    ttft_ms: Annotated[float | None, Option()] = None
    """Time to the first token."""
    itl_ms: Annotated[float | None, Option()] = None
    """Time between tokens."""
    tokens: Annotated[int | None, Option()] = None
    """Tokens of an answer at most."""
    lora_module: Annotated[tuple[str, ...], Option(metavar="NAME")] = ()
    """A further model that it serves; repeatable."""
    fault: Annotated[tuple[str, ...], Option(metavar="NAME:KEY=VALUE,...")] = ()
    """What goes wrong: freeze:at_s=2, cut:every=2,after=8, status:code=429 ..."""
    fault_plan: Annotated[Path | None, Option()] = None
    """The same in a YAML or JSON file."""
    truth: Annotated[Path | None, Option()] = None
    """File (JSON Lines) of what was really sent when."""
    model: str | None = None

    def plan(self) -> "MockPlan":
        """Return the plan of the file with the options laid over it. Raises ``MockError``."""
        from servetwin.loadtest.mock.plan import parse_fault, read_plan

        names = ("model", "ttft_ms", "itl_ms", "tokens")
        options = {name: v for name in names if (v := getattr(self, name)) is not None}
        if self.lora_module:
            options["lora_modules"] = self.lora_module
        options["faults"] = tuple(parse_fault(text) for text in self.fault)
        return read_plan(self.fault_plan, options)

    def serve(self, host: str, port: int) -> None:
        """Serve until Ctrl-C."""
        from servetwin.loadtest.mock.server import serve_mock

        plan, truth = self.plan(), self.truth
        ready = f"serving {plan.model} at {{}}/v1 (Ctrl-C stops)"
        count = serve_mock(plan, host, port, truth, lambda url: typer.echo(ready.format(url)))
        typer.echo(f"{count} requests came" + (f"; the truth is in {truth}" if truth else ""))


def check_options(context: typer.Context, *, mock: bool) -> None:
    """Raise ``MockError`` for options of a mock without one, or of an engine with one."""
    of_mock = {field.name for field in fields(MockOptions)} - {*_ALSO}
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in _ALSO:
            continue
        if mock and name not in of_mock:
            raise MockError(f"{parameter.opts[0]}: not with --mock, which has no engine")
        if not mock and name in of_mock:
            raise MockError(f"{parameter.opts[0]}: only with --mock")
