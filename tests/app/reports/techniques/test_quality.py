"""Quality beside throughput in the terminal and as JSON."""

import json

import pytest

from servetwin.app.reports.techniques.quality import (
    RatedEffect,
    on_front,
    quality_as_dict,
    quality_cell,
    quality_known,
    quality_lines,
    quality_source,
    signed_cell,
)
from servetwin.sim.techniques.effects import Change, Effect
from servetwin.sim.techniques.quality import KEPT, Quality
from servetwin.sim.techniques.registry import find_technique
from servetwin.sim.techniques.technique import Experiment
from tests.support.command import refused, servetwin

AWQ = Quality("this model", 0.0238, "AWQ (2023-06)", "perplexity", "WikiText-2", "rounded",
              "llama-2-7b", 5.47, 5.6)  # fmt: skip
FP8 = Quality("nearest model", -0.0071, "a card (2024)", "accuracy", "six tasks", "", "llama-3-8b",
              68.71, 68.22)  # fmt: skip


def judged(text: str, quality: Quality | None, gain: float | None, aside: str = "") -> RatedEffect:
    change = Change("throughput", gain, gain, gain)
    effect = Effect(find_technique(text), Experiment(), (change,))
    return RatedEffect(effect, quality, aside)


@pytest.mark.parametrize(
    ("quality", "cell", "signed"),
    [
        (None, "not known", "not known"),
        (KEPT, "0", "0"),
        (AWQ, "ppl +2.4%", "- ppl +2.4%"),
        (FP8, "acc -0.7%~", "0 acc -0.7%~"),
        (Quality("own value", 0.03, "x", "accuracy"), "acc +3.0%", "+ acc +3.0%"),
        (Quality("own value", -0.03, "x", "perplexity"), "ppl -3.0%", "+ ppl -3.0%"),
    ],
)
def test_cells(quality: Quality | None, cell: str, signed: str) -> None:
    assert (quality_cell(quality), signed_cell(quality)) == (cell, signed)


def test_sources_name_figures_task_model_method_and_date() -> None:
    assert quality_source(AWQ) == (
        "perplexity 5.47 to 5.6 (WikiText-2) on llama-2-7b, rounded; AWQ (2023-06)"
    )
    assert "on another model, llama-3-8b; a card (2024)" in quality_source(FP8)
    assert quality_source(Quality("own value", 0, "mine", "accuracy")) == "own value: mine"
    assert "--quality" in quality_source(None)


ROWS = [
    judged("awq", AWQ, 1.0),
    judged("weight-int4", AWQ, 0.5),
    judged("fp8", FP8, 0.25),
    judged("kv-cache", KEPT, 9.0, "already enabled on this server"),
    judged("cascade", None, 2.0),
    judged("prefix-cache", KEPT, None),
    RatedEffect(Effect(find_technique("experts"), Experiment(), refused="no"), None),
]


def test_the_front_leaves_out_what_cannot_be_compared() -> None:
    assert on_front(ROWS) == [True, False, True, None, None, None, None]


def test_lines_are_sorted_by_throughput_and_name_what_is_not_known() -> None:
    printed = list(quality_lines(ROWS))
    assert max(map(len, printed)) <= 100
    start = 1 + next(
        i for i, line in enumerate(printed) if line.split()[:2] == ["technique", "quality"]
    )
    assert printed[start : start + 4] == [
        "  kv-cache              0    +900.0  (already enabled on this server)",
        "* awq           ppl +2.4%    +100.0",
        "  weight-int4   ppl +2.4%     +50.0",
        "* fp8          acc -0.7%~     +25.0",
    ]
    assert printed[-1] == "  not known: cascade"
    assert sum("AWQ (2023-06)" in line for line in printed) == 2
    assert list(quality_lines(ROWS[4:])) == []


@pytest.mark.parametrize(
    ("name", "known"),
    [("kv-cache", "kept"), ("awq", "published"), ("gguf", "published"), ("cascade", "not known")],
)
def test_the_list_says_whether_a_quality_is_known(name: str, known: str) -> None:
    assert quality_known(type(find_technique(name))) == known
    done = servetwin("techniques", "list", "--json")
    assert json.loads(done.out)[name]["quality"] == known


def test_json_has_a_basis_for_every_technique() -> None:
    assert quality_as_dict(None) == {"basis": "not known"}
    found = quality_as_dict(FP8)
    assert (found["basis"], found["model"], found["before"]) == (
        "nearest model", "llama-3-8b", 68.71
    )  # fmt: skip
    assert found["loss"] == 0.0071


@pytest.mark.slow
def test_the_command_has_ones_own_value_in_table_and_json() -> None:
    own = "kv-quantisation=accuracy:-2%@own, 2026-11"
    names = ("--only", "kv-quantisation", "--only", "kernel-fusion")
    asked = ("techniques", *names, "--replications", 2, "--quality", own)
    lines = servetwin(*asked).out.splitlines()
    assert max(map(len, lines)) <= 100
    assert sum(line.endswith("- acc -2.0%") for line in lines) == 1
    assert "  kv-quantisation: own value: own, 2026-11" in lines
    entries = {e["name"]: e for e in json.loads(servetwin(*asked, "--json").out)["techniques"]}
    assert entries["kv-quantisation"]["quality"]["change"] == -0.02
    assert entries["kernel-fusion"]["quality"]["basis"] == "by definition"
    assert entries["kv-quantisation"]["on_quality_front"] in (True, False)


def test_a_quality_without_a_source_is_refused_before_anything_runs() -> None:
    said = refused("techniques", "--only", "awq", "--quality", "awq=accuracy:-2%")
    assert "--quality: awq: a quality without a source; write NAME=METRIC:CHANGE%@SOURCE" in said


@pytest.mark.slow
def test_emulated_fp8_is_said_in_table_and_json() -> None:
    asked = ("techniques", "--only", "fp8", "--replications", 2)
    said = "a100-80gb has no fp8 products: emulated as weight-only"
    assert any(line.startswith(f"note: fp8: {said}") for line in servetwin(*asked).out.splitlines())
    (entry,) = json.loads(servetwin(*asked, "--json").out)["techniques"]
    assert entry["note"].startswith(said)
    refusing = ("techniques", "--only", "fp8:missing=refuse", "--replications", 2)
    assert "a100-80gb has no fp8 products" in refused(*refusing)
