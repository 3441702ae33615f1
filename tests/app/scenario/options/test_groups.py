"""Option groups: what a command gets of them, and that each option is declared once."""

import inspect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, get_args

import pytest
import typer
from typer.main import get_command
from typer.models import ArgumentInfo, OptionInfo
from typer.testing import CliRunner

from servetwin.app.cli import app
from servetwin.app.scenario.options.groups import (
    OptionError,
    require_absent,
    takes_options,
)
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions

OTHER_MEANING = {
    "--against": "a prediction (loadtest), or a reference trace (workload stats)",
    "--attainment": "of a sweep over load levels (loadtest), and absent without one",
    "--api-key-env": "of the endpoint (loadtest), or of the clients (serve)",
    "--arrivals": "one of three sources of a load (loadtest), or the process of a trace (generate)",
    "--batching": "a scheduler to offer beside the others (dashboard)",
    "--block-tokens": "tokens of a prefix id in a generated trace",
    "--closed-loop": "a number of users in a generated trace",
    "--context": "positions of a product, or tokens of a sequence (techniques)",
    "--end": "the end of what is exported (explain)",
    "--gpu": "those to choose from (plan)",
    "--hardware": "the device of a table (techniques), those to choose from (plan)",
    "--host": "the dashboard's address, which lets others in",
    "--kv": "a KV memory to offer beside the others (dashboard)",
    "--model": "of the engine, the catalogue, the endpoint or a table",
    "--out": "a run folder, a profile, a frame, a page or a trace",
    "--plot": "a figure of one metric for a paper (sweep)",
    "--port": "8000 of the engine, 8501 of the dashboard",
    "--price": "in place of the list prices (plan)",
    "--processes": "of a load test, of replications, of a grid: other defaults",
    "--profile": "a profile to offer beside the others (dashboard)",
    "--rate": "of a trace, of a load test, of a generated trace: other defaults",
    "--replicas": "without a number, how many are needed (capacity)",
    "--replications": "simulations or draws: other defaults and bounds",
    "--scenario": "a file of the dashboard (replay), or of techniques",
    "--seed": "of replay, where the scenario's seed comes first",
    "--server": "the kind alone, by default vLLM (plan)",
    "--start": "the start of what is exported",
    "--timeout": "of a load test, where it is 600 s by default",
    "--trace": "one of three sources of a load (loadtest), or optional (verify)",
}
"""Options whose name has several meanings, each with its reason."""

SECTIONS = {"policies": PolicyOptions, "cluster": ClusterOptions}


def commands(command: Any) -> Iterator[Any]:
    yield command
    for sub in getattr(command, "commands", {}).values():
        yield from commands(sub)


def declarations() -> dict[str, set[int]]:
    """The objects that declare each option, over all commands."""
    found = defaultdict(set)
    for command in commands(get_command(app)):
        hints = inspect.signature(command.callback).parameters if command.callback else {}
        for parameter in command.params:
            if parameter.name not in hints:
                assert parameter.name in ("help", "install_completion", "show_completion")
                continue
            (declared,) = (
                each
                for each in get_args(hints[parameter.name].annotation)
                if isinstance(each, OptionInfo | ArgumentInfo)
            )
            for name in parameter.opts:
                found[name].add(id(declared))
    return found


def test_an_option_is_declared_once() -> None:
    several = {name for name, declared in declarations().items() if len(declared) > 1}
    assert several == set(OTHER_MEANING)


@pytest.mark.parametrize("section", SECTIONS)
def test_an_option_of_a_setting_has_the_help_of_the_setting(section: str) -> None:
    from servetwin.app.scenario.setting_docs import setting_docs

    for field in fields(SECTIONS[section]):
        if f"{section}.{field.name}" in setting_docs():
            (declared,) = (e for e in get_args(field.type) if isinstance(e, OptionInfo))
            assert f"{{{section}.{field.name}}}" in str(declared.help)


@dataclass(frozen=True, slots=True)
class Size:
    PANEL: ClassVar = "Size"

    width: Annotated[int, typer.Option(help="Width.")] = 1
    names: Annotated[tuple[str, ...], typer.Option("--name", help="Name; repeatable.")] = ()
    unset: int = 7


@dataclass(frozen=True, slots=True)
class Box:
    size: Size
    depth: Annotated[int, typer.Option(help="Depth.")] = 2


def run(command: Any, *arguments: str) -> Any:
    made = typer.Typer()
    made.command()(takes_options()(command))
    return CliRunner().invoke(made, arguments, catch_exceptions=False)


def test_a_command_gets_its_groups_built() -> None:
    found = []

    def draw(title: Annotated[str, typer.Argument()], box: Box, dry: bool = False) -> None:
        found.append((title, box, dry))

    assert run(draw, "a").exit_code == 0
    assert run(draw, "b", "--width", "3", "--name", "x", "--name", "y", "--dry").exit_code == 0
    assert found == [("a", Box(Size()), False), ("b", Box(Size(3, ("x", "y"))), True)]


def test_a_command_may_take_a_part_of_a_group() -> None:
    found = []

    def draw(size: Annotated[Size, ("width",)]) -> None:
        found.append(size)

    assert run(draw, "--width", "4").exit_code == 0
    assert run(draw, "--name", "x").exit_code == 2
    assert found == [Size(4)]


def test_the_panel_of_a_group_heads_its_options() -> None:
    def draw(size: Size) -> None:
        """Draw."""

    shown = run(draw, "--help").output
    assert "Size" in shown
    assert shown.index("Size") < shown.index("--width")
    assert "--unset" not in shown


def test_the_first_option_that_has_a_value_is_named() -> None:
    require_absent({"--url": None, "--technique": ()}, "not here")
    for value in ("x", 0, ("x",)):
        with pytest.raises(OptionError, match=r"^--policy: not here$"):
            require_absent({"--url": None, "--policy": value, "--why": True}, "not here")
