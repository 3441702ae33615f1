"""Options of ``servetwin serve --mock``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from loadtest.mock.plan import MockPlan

_PANEL = "Mock"
_WITH_MOCK = ("mock", "ttft_ms", "itl_ms", "tokens", "fault", "fault_plan", "truth")
_ALSO = ("model", "host", "port")

Mock = Annotated[
    bool,
    typer.Option(
        "--mock", help="Serve streams with given times and faults.", rich_help_panel=_PANEL
    ),
]
TTFTMs = Annotated[
    float | None, typer.Option(help="Time to the first token.", rich_help_panel=_PANEL)
]
ITLMs = Annotated[float | None, typer.Option(help="Time between tokens.", rich_help_panel=_PANEL)]
Tokens = Annotated[
    int | None, typer.Option(help="Tokens of an answer at most.", rich_help_panel=_PANEL)
]
Faults = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="NAME:KEY=VALUE,...",
        help="What goes wrong: freeze:at_s=2, cut:every=2,after=8, status:code=429 ...",
        rich_help_panel=_PANEL,
    ),
]
FaultPlan = Annotated[
    Path | None,
    typer.Option(help="The same in a YAML or JSON file.", rich_help_panel=_PANEL),
]
Truth = Annotated[
    Path | None,
    typer.Option(help="What was really sent when (JSON Lines).", rich_help_panel=_PANEL),
]


@dataclass(frozen=True, slots=True)
class MockOptions:
    """Mock options as given."""

    model: str | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    tokens: int | None = None
    faults: tuple[str, ...] = ()
    file: Path | None = None

    def plan(self) -> "MockPlan":
        """The plan of the file, with the options on top. Raises ``MockError``."""
        from loadtest.mock.fault_parser import parse_fault, read_plan

        values = {name: getattr(self, name) for name in ("model", "ttft_ms", "itl_ms", "tokens")}
        given: dict[str, Any] = {name: v for name, v in values.items() if v is not None}
        given["faults"] = tuple(parse_fault(text) for text in self.faults)
        return read_plan(self.file, given)


def check_options(context: typer.Context, *, mock: bool) -> None:
    """Raise ``MockError`` for options of a mock without one, or of an engine with one."""
    from loadtest.mock.errors import MockError

    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in _ALSO:
            continue
        if mock and name not in _WITH_MOCK:
            raise MockError(f"{parameter.opts[0]}: not with --mock, which has no engine")
        if not mock and name in _WITH_MOCK:
            raise MockError(f"{parameter.opts[0]}: only with --mock")


def serve_mocked(chosen: MockOptions, host: str, port: int, truth: Path | None) -> None:
    """Serve until Ctrl-C."""
    from loadtest.mock.serving import serve_mock

    plan = chosen.plan()
    ready = f"serving {plan.model} at {{}}/v1 (Ctrl-C stops)"
    asked = serve_mock(plan, host, port, truth, lambda url: typer.echo(ready.format(url)))
    typer.echo(f"{asked} requests came" + (f"; the truth is in {truth}" if truth else ""))
