"""The words for where step times come from: of every server, and of what older profiles said."""

from typing import get_args

import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.sim.step_times.profile import load_profile, shipped_profiles
from servetwin.sim.step_times.provenance import MEANINGS, Origin
from servetwin.sim.step_times.server_model import PluginServer
from servetwin.sim.step_times.tables import KernelTable, LayerTable, TableProfile
from servetwin.sim.step_times.tables.published_tables import OperatorTable, PhaseTable
from servetwin.sim.techniques.registry import build_setup
from tests.support.made_kernels import MadeKernels
from tests.support.paths import DOCS, KERNEL_PROFILES, OF_KERNELS, SHEET_PROFILE

ORIGINS: tuple[Origin, ...] = get_args(Origin)


def test_every_word_has_a_sentence() -> None:
    assert tuple(MEANINGS) == ORIGINS
    assert all(said.endswith(".") for said in MEANINGS.values())


def test_the_documentation_has_every_word_with_its_sentence() -> None:
    page = (DOCS / "simulation-practice.md").read_text()
    for origin, meaning in MEANINGS.items():
        assert f"| *{origin}* | {meaning} |" in page


@pytest.mark.parametrize(
    ("profile", "origin"),
    [
        ("base-cpu", "measured here"),
        (SHEET_PROFILE, "computed from data sheets"),
        (OF_KERNELS, "kernel tables"),
    ],
)
def test_a_shipped_profile_says_truly_what_it_is(profile: str, origin: Origin) -> None:
    assert load_profile(profile).origin == origin
    assert origin in load_profile(profile).describe()[0]


def test_every_profile_of_kernel_tables_says_so() -> None:
    for name in (*shipped_profiles(), *map(str, KERNEL_PROFILES.glob("*.json"))):
        profile = load_profile(name)
        has_tables = "kernel tables" in profile.engine.get("source", "")
        assert (profile.origin == "kernel tables") is has_tables, name


def test_servers_that_are_no_profiles_have_an_origin() -> None:
    kernels = TableProfile("k", KernelTable(MadeKernels(), "made"), PolicyConfig())
    assert kernels.origin == "kernel tables"
    for table in (LayerTable, OperatorTable, PhaseTable):
        assert table.origin == "measured by others"
    server = build_setup("llama-3-8b", "h100").scenario().profile
    assert server.origin == "computed from data sheets"
    assert PluginServer("mine.py:Mine").origin == "not stated"
