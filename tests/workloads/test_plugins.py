"""Registries: what is registered is there and whole; names, files and settings are kept apart."""

import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Protocol

import pytest

from servetwin.policies.registry import EVICTION_ORDERS, MEMORIES, ROUTERS, SCHEDULERS
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.workloads.errors import PluginError, PolicyError, TraceError
from servetwin.workloads.generators.processes import ARRIVALS, arrival_settings, plain_arrivals
from servetwin.workloads.plugin_guard import members, plugin_error
from servetwin.workloads.plugins import Registry, names_a_file, plugin_name, split_settings
from servetwin.workloads.readers.registry import READERS

REGISTRIES: dict[str, Registry[Any]] = {
    registry.role: registry
    for registry in (SCHEDULERS, MEMORIES, ROUTERS, EVICTION_ORDERS, TECHNIQUES, READERS)
}
REGISTERED = [(role, name) for role, registry in REGISTRIES.items() for name in registry]
ORDER = "class Mine:\n    def rank(self, uses, born, now):\n        return {value}\n"


@pytest.mark.parametrize(("role", "name"), REGISTERED)
def test_what_is_registered_has_all_that_its_kind_must_have(role: str, name: str) -> None:
    registry = REGISTRIES[role]
    found = registry[name]
    wanted = members(registry.interface).items()
    functions = [name for name, kind in wanted if isinstance(kind, FunctionType)]
    assert [name for name in functions if not hasattr(found, name)] == []
    assert found.__doc__


@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_technique_is_registered_by_its_own_name(name: str) -> None:
    assert TECHNIQUES[name].name == name


def test_registered_readers_are_modules_and_are_built_as_they_are() -> None:
    assert isinstance(READERS.build("mooncake"), ModuleType)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gamma", ("gamma", "")),
        ("gamma:cv=2", ("gamma", "cv=2")),
        ("a/b.py:Mine", ("a/b.py:Mine", "")),
        ("a/b.py:Mine:cv=2,file=c.py", ("a/b.py:Mine", "cv=2,file=c.py")),
    ],
)
def test_settings_are_split_off(text: str, parts: tuple[str, str]) -> None:
    assert split_settings(text) == parts
    assert names_a_file(text) == ("b.py:" in text)


def test_every_kind_has_an_error_of_its_own_for_unknown_names() -> None:
    with pytest.raises(PolicyError, match="router: unknown router 'randm'; did you mean 'random'"):
        ROUTERS.build("randm")
    with pytest.raises(TraceError, match="--arrivals: unknown arrival process 'x'; known are "):
        ARRIVALS.build("x", 1.0)
    with pytest.raises(PolicyError, match="eviction: unknown eviction order"):
        EVICTION_ORDERS.require("a.py:Mine:x=1")


def test_a_file_is_loaded_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    for value in (1, 2):
        path.write_text(ORDER.format(value=value))
        assert EVICTION_ORDERS.build(f"{path}:Mine").rank(0, 0, 0) == value
    assert EVICTION_ORDERS.find(f"{path}:Mine") is EVICTION_ORDERS.find(f"{path}:Mine")


def test_a_file_that_failed_leaves_no_module(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import sys\nsys.exit(3)\n")
    before = set(sys.modules)
    with pytest.raises(PluginError, match=r"mine.py:2: Mine: the file raised SystemExit: 3"):
        EVICTION_ORDERS.build(f"{path}:Mine")
    assert set(sys.modules) == before


def test_an_interrupt_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt) as caught:
        EVICTION_ORDERS.build(f"{path}:Mine")
    assert plugin_error(caught.value) is None


def test_an_error_of_ours_is_not_a_plug_ins() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018
    assert plugin_error(caught.value) is None


def test_a_plug_in_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(ORDER.format(value=0))
    assert plugin_name(EVICTION_ORDERS.build(f"{path}:Mine")) == f"{path}: Mine"
    assert plugin_name(EVICTION_ORDERS.build("lru")) == "LeastRecentlyUsed"


def test_settings_of_a_process_are_its_parameters() -> None:
    assert list(arrival_settings("mmpp2")) == ["on", "off", "off_share"]
    assert {"poisson", "gamma", "mmpp2"} <= set(plain_arrivals())
    assert "ramp" not in plain_arrivals()


class Adding(Protocol):
    def add(self, first: int) -> int:
        """Return a sum."""


OWN_PARAMETERS = """class Mine:
    def add(self, first, {more}):
        return {value}
"""


@pytest.mark.parametrize(
    ("more", "value"),
    [
        ("more=2", "first + more"),
        ("_hidden=2", "first + _hidden"),
        ("type=2, result=0", "first + type + result"),
        ("*rest, last=2", "first + last"),
        ("**others", "first + len(others) + 2"),
    ],
)
def test_a_guarded_method_keeps_its_parameters(tmp_path: Path, more: str, value: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN_PARAMETERS.format(more=more, value=value))
    registry: Registry[Any] = Registry("adding", "sum", f"{__name__}:Adding", "", {})
    adding = registry.build(f"{path}:Mine")
    assert adding.add(5) == 7
    assert adding.add(first=5) == 7
    with pytest.raises(PluginError, match=r"Mine\.add\(\) raised TypeError"):
        adding.add("five")
