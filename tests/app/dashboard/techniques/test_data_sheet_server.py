"""A server of data sheets with techniques on and off."""

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.dashboard.techniques.effects import texts
from servetwin.app.scenario.files.scenario_file import ScenarioFile, parse_scenario
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.workloads.errors import PolicyError


def sheet(*techniques: str) -> Deployment:
    return Deployment(model="llama-2-7b", gpu="a100-80gb", techniques=techniques, times="sheet")


def test_a_technique_that_is_on_is_judged_against_the_server_without_it() -> None:
    server = DataSheetServer(sheet("fp8", "weight-offload:resident=0.5"))
    assert "weight-offload:resident=0.5" in texts(server)
    assert texts(server, ["kernels"]) == [
        name for name, technique in TECHNIQUES.items() if technique.family == "kernels"
    ]
    assert server.untouched("weight-offload").techniques == ("fp8",)
    changed = server.with_technique("fp8")
    assert changed.techniques == ("weight-offload:resident=0.5", "fp8")
    with pytest.raises(PolicyError, match="unknown parameter"):
        server.with_technique("fp8:bits=4")


def test_what_the_server_has_by_itself_is_turned_off_and_on_again() -> None:
    plain = DataSheetServer.of(ScenarioFile())
    assert plain.has_by_itself("kv-cache")
    assert not plain.has_by_itself("fp8")
    off = plain.without_technique("kv-cache")
    assert (off.without, off.lacks("kv-cache")) == (("kv-cache",), True)
    assert off.has_by_itself("kv-cache")
    assert not off.setup().deployment.kv_cache
    assert off.with_technique("kv-cache").without == ()
    assert off.untouched("kv-cache") == plain
    assert plain.with_technique("fp8").without_technique("fp8") == plain
    assert DataSheetServer.of(off.in_scenario(ScenarioFile())) == off


def test_the_scenario_keeps_all_but_its_server() -> None:
    file = parse_scenario("workload: {rate_per_s: 3}\npolicies: {max_seqs: 7}", "test")
    assert DataSheetServer.of(file).deployment.model == "llama-3-8b"
    found = DataSheetServer(sheet()).with_technique("fp8").in_scenario(file)
    assert DataSheetServer.of(found) == DataSheetServer(sheet("fp8"))
    assert found.model_copy(update={"deployment": file.deployment}) == file
    assert ScenarioFile.model_validate(found.model_dump()) == found
