"""The table of techniques that runs confirm is made of the figures beside it."""

import json

from tests.benchmarks.confirmed_techniques import BEGIN, END, KEPT, PAGE, condensed, lines


def test_the_table_is_that_of_the_kept_figures() -> None:
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip()
    assert table == "\n".join(lines(json.loads(KEPT.read_text())))


def test_a_verdict_becomes_rows() -> None:
    effect = {
        "metric": "tpot_alone",
        "predicted": {"value": 0.5, "low": 0.45, "high": 0.55},
        "measured": 0.52,
        "measured_interval": [0.5, 0.54],
        "sign_right": True,
        "inside": True,
        "outcome": "holds",
    }
    undefined = {**effect, "predicted": None}
    record = {
        "technique": "weight-int8",
        "machine": {"processor": "a CPU"},
        "engine": {"model": "small"},
        "pairs": 3,
        "outcome": "holds",
        "effects": [effect, undefined],
    }
    found = list(lines({"weight-int8": condensed(record, "2026-01-01")}))
    assert found[2] == (
        "| `weight-int8` | TPOT, alone | -50 [-55, -45] | -48 [-50, -46] | right | yes |"
    )
    assert len(found) == 5
    assert "sign is right in 1, wrong in 0" in found[-1]
