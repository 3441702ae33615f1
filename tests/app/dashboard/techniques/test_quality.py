"""Quality of techniques on a server, as table and as points."""

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.dashboard.techniques.quality_panel import (
    judge_all,
    own_qualities,
    quality_points,
    quality_table,
)
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.sim.techniques.effects import Change, Effect
from servetwin.sim.techniques.registry import find_technique
from servetwin.sim.techniques.technique import LONG_PROMPTS, Experiment
from servetwin.workloads.errors import PolicyError

SERVER = DataSheetServer(
    Deployment(model="llama-2-7b", gpu="a100-80gb", techniques=("fp8",), times="sheet")
)


def effect(text: str, gain: float, load: Experiment | None = None) -> Effect:
    change = Change("throughput", gain, gain, gain)
    return Effect(find_technique(text), load or Experiment(), (change,))


EFFECTS = {
    "awq": effect("awq", 1.0),
    "fp8": effect("fp8", 0.5),
    "kv-cache": effect("kv-cache", 9.0),
    "sequence-parallel": effect("sequence-parallel", 0.4, LONG_PROMPTS),
    "kernel-fusion": effect("kernel-fusion", 0.1),
    "cascade": effect("cascade", 3.0),
}


def test_only_what_can_be_compared_is_drawn() -> None:
    points = quality_points(judge_all(EFFECTS, SERVER, {}))
    assert set(points["technique"]) <= {"awq", "kernel-fusion"}
    (awq,) = points[points["technique"] == "awq"].to_dict("records")
    assert awq["metric"] == "perplexity"
    assert awq["throughput_percent"] == 100
    assert awq["loss_percent"] == pytest.approx(100 * 0.13 / 5.47)
    assert awq["on_front"] is True
    assert quality_points({}).empty


def test_the_table_says_of_each_how_it_is_known_and_why_it_is_not_compared() -> None:
    own = own_qualities("\n cascade=accuracy:-3%@mine \n", ["cascade", "awq"])
    judged = judge_all(EFFECTS, SERVER, own)
    names = [*EFFECTS, "diffusion"]
    table = quality_table(names, judged, SERVER.setup(), own).set_index("technique")
    front = table["on the front"]
    assert front["awq"] == "yes"
    assert front["fp8"] == front["kv-cache"] == "already enabled on this server"
    assert front["sequence-parallel"] == "under another load"
    assert front["diffusion"] == "not measured"
    assert table.loc["diffusion", "quality"] == "not known"
    assert table.loc["cascade", "quality"] == "acc -3.0%"
    assert table.loc["cascade", "how it is known"] == "own value: mine"


def test_own_values_that_are_wrong_say_so() -> None:
    with pytest.raises(PolicyError, match="own values: awq: a quality without a source"):
        own_qualities("awq=accuracy:-3%", ["awq"])
