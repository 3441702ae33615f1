"""Techniques beside tables: each is expressed, or refused in one line; none is passed over."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.sim.techniques.technique import SHIPPED
from servetwin.workloads.errors import PolicyError, ServetwinError
from tests.support.made_kernels import install_made_package

ENGINE = """
from tests.support.made_kernels import MadeKernels

class EngineHandle(MadeKernels):
    @classmethod
    def compile(cls, *args, **options):
        made = cls()
        made.given = args, options
        return made
"""
TIMES = ("kernels", "sheet")
OPTIONS = {
    "kv-quantisation": ("", ":format=int8", ":format=int4"),
    "phase-formats": ("", ":prefill=fp8,decode=gptq"),
    "tensor-parallel": ("", ":latency_us=20"),
    "weight-int4": ("", ":group=32"),
    "fp8": ("", ":scales=dynamic", ":format=e5m2"),
    "gptq": ("", ":bits=3"),
}
"""Parameters that change what a technique does to the formats."""


def simulated(times: str, *techniques: str, **more: Any) -> Any:
    """Return all that a run depends on: the policies, the cluster and the step times."""
    deployment = Deployment(
        model="llama-3.1-8b", gpu="h100", times=times, techniques=techniques, **more
    )
    scenario = deployment.scenario()
    profile: Any = scenario.profile
    if times == "sheet":
        return scenario.policies, scenario.cluster, profile.deployment, profile.acceptance
    return scenario.policies, scenario.cluster, profile.table.times.given, profile.devices


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("name", SHIPPED)
def test_a_technique_changes_what_is_simulated_or_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, times: str
) -> None:
    install_made_package(monkeypatch, tmp_path, ENGINE)
    plain = simulated(times)
    for parameters in OPTIONS.get(name, ("",)):
        deployment = Deployment(model="llama-3.1-8b", gpu="h100", times=times,
                                techniques=(name + parameters,))  # fmt: skip
        changed = None
        with suppress(ServetwinError):
            changed = simulated(times, name + parameters)
        if changed is None:
            with pytest.raises(ServetwinError) as refusal:
                deployment.scenario()
            assert "\n" not in str(refusal.value)
            continue
        notes = deployment.servers().notes()
        assert changed != plain or any(name in note for note in notes)
        if times == "kernels":  # what the tables were asked for is not what they were before
            sheet, before = simulated("sheet", name + parameters)[2], simulated("sheet")[2]
            differs = (sheet.prefill, sheet.decode, sheet.kv_element_bytes, sheet.parallel) != (
                before.prefill, before.decode, before.kv_element_bytes, before.parallel
            )  # fmt: skip
            assert not differs or changed[2] != plain[2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"link": "dgx-h100"}, "--link: tables of kernels know nothing of it; take --times sheet"),
        ({"efficiency": "compute=0.7"}, "--efficiency: tables of kernels know nothing of it"),
        ({"techniques": ("fp8:scales=dynamic",)}, "--technique fp8: tables of kernels know"),
        ({"techniques": ("kv-quantisation:format=int4",)}, "--technique kv-quantisation: tables"),
        ({"techniques": ("phase-formats:prefill=fp8,decode=gptq",)}, "--technique phase-formats"),
        ({"techniques": ("tensor-parallel:latency_us=9",)}, "--technique tensor-parallel: tables"),
    ],
)
def test_what_kernel_tables_do_not_know_is_refused(options: dict[str, Any], says: str) -> None:
    deployment = Deployment(model="llama-3.1-8b", gpu="h100", times="kernels", **options)
    with pytest.raises(PolicyError, match=says):
        deployment.servers()


def test_the_best_evidence_is_taken_with_a_server_and_without_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So a plan, which names its server, and a replay of the same model and GPU are alike."""

    def rests_on(**more: Any) -> tuple[str, str]:
        profile: Any = Deployment(model="llama-3.1-8b", gpu="h100", **more).scenario().profile
        table = getattr(profile, "table", None)
        return profile.origin, table.overheads.as_text() if table else ""

    assert rests_on() == rests_on(server="vllm") == ("computed from data sheets", "")
    install_made_package(monkeypatch, tmp_path, ENGINE)
    assert rests_on() == rests_on(server="vllm")
    assert rests_on()[0] != "computed from data sheets"
    for options in ({"times": "sheet"}, {"efficiency": "compute=0.7"}):
        assert rests_on(**options)[0] == "computed from data sheets"
