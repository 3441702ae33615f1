"""Effects of techniques in tables."""

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.dashboard.techniques.effects import (
    HEADS,
    change_text,
    changes_frame,
    dozen,
    effects_table,
    measure,
)
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.techniques.effects import METRICS, Change
from servetwin.sim.techniques.registry import TECHNIQUES

PLAIN = DataSheetServer(Deployment(model="llama-2-7b", gpu="a100-80gb", times="sheet"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change("ttft_alone", -0.123, -0.127, -0.119), "better -12.3 % ±0.4"),
        (Change("throughput", -0.5, -0.6, -0.4), "worse -50.0 % ±10.0"),
        (Change("ttft_alone", -0.123, -0.1231, -0.1229), "better -12.3 %"),
        (Change("throughput", 12.5, 10.0, 15.0), "better +1250 % ±250"),
        (Change("memory", 0.005, 0.004, 0.006), "none"),
        (Change("tps_alone", 0.05, -0.05, 0.15), "unsure +5.0 % ±10.0"),
        (Change("tps_alone", None, None, None), "undefined"),
    ],
)
def test_changes_in_words(change: Change, words: str) -> None:
    assert change_text(change) == words


def test_the_dozen_is_of_every_kind_and_has_what_is_on() -> None:
    server = PLAIN.with_technique("cascade").with_technique("weight-int4:group=64")
    plain, shown = dozen(PLAIN), dozen(server)
    assert len(plain) == len(set(plain)) == 12
    assert len({TECHNIQUES[name].family for name in plain}) >= 6
    assert set(shown) == {*plain, "cascade", "weight-int4:group=64"} - {"weight-int4"}


def test_an_effect_is_that_of_the_command_line() -> None:
    server = PLAIN
    effect = measure((server, "weight-int4"))
    assert effect.of("memory").sign == effect.of("tps_alone").sign == "+"
    refused = measure((server, "expert-parallel"))
    assert "no experts" in (refused.refused or "")
    table = effects_table(
        ["weight-int4", "expert-parallel", "awq"],
        {"weight-int4": effect, "expert-parallel": refused},
        find_model("llama-2-7b"),
    ).set_index("technique")
    heads = [head for head, _ in HEADS.values()]
    assert str(table.loc["weight-int4", "memory"]).startswith("better -")
    assert set(table.loc["expert-parallel", heads]) == {"not applicable"}
    assert set(table.loc["awq", heads]) == {""}
    assert table.loc["awq", "answers"] == "may change"
    assert list(table["quality"]) == ["ppl +4.8%", "0", "ppl +2.4%"]
    changes = changes_frame([effect, refused])
    assert len(changes) == len(METRICS) + 1
    assert changes["refused"].notna().sum() == 1
