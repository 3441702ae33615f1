"""``replay compare A B``: differences with intervals, as text that fits and as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from servetwin.sim.experiments.paired_comparison import METRICS
from servetwin.sim.records.metrics import figure
from servetwin.sim.records.run import load_run
from tests.support.command import servetwin, with_server
from tests.support.paths import SAMPLE, SHEET_PROFILE

COMPUTED = ("--profile", SHEET_PROFILE)
TIGHT = ("--kv-tokens", 2048)


def compare(a: str, b: str, *options: object) -> dict[str, Any]:
    done = servetwin("replay", "compare", a, b, SAMPLE, "--json", *with_server(*options))
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def text(a: str, b: str, *options: object) -> list[str]:
    done = servetwin("replay", "compare", a, b, SAMPLE, *with_server(*options))
    assert done.code == 0, done.err
    return done.out.splitlines()


@pytest.mark.parametrize("same", ["vllm-v1", "distserve", "static+contiguous", "max_seqs=4"])
def test_equal_sides_differ_in_nothing(same: str) -> None:
    found = compare(same, same, *TIGHT, "--replications", 2)
    assert set(METRICS) - set(found["metrics"]) == {m for m in METRICS if m[:4] in ("ttfo", "task")}
    for metric in found["metrics"].values():
        assert metric["a"] == metric["b"] > 0
        assert (metric["difference"], metric["low"], metric["high"]) == (0, 0, 0)
        assert metric["seeds"] == 2
    assert found["gained"] == found["lost"] == []


def test_a_longer_way_to_say_the_same_is_the_same() -> None:
    found = compare("sarathi", "chunked+paged+token_budget=512+block_tokens=16", *COMPUTED)
    assert found["a"]["policies"] == found["b"]["policies"]
    assert {metric["difference"] for metric in found["metrics"].values()} == {0}


def test_sides_change_places_and_differences_change_their_sign() -> None:
    one, other = "static+contiguous", "continuous+paged"
    there = compare(one, other, *TIGHT, "--replications", 2)
    back = compare(other, one, *TIGHT, "--replications", 2)
    for name, metric in there["metrics"].items():
        mirror = back["metrics"][name]
        assert (metric["a"], metric["b"]) == (mirror["b"], mirror["a"])
        assert metric["difference"] == pytest.approx(metric["b"] - metric["a"])
        assert metric["difference"] == pytest.approx(-mirror["difference"])
        assert (metric["low"], metric["high"]) == pytest.approx((-mirror["high"], -mirror["low"]))
    assert there["gained"][0]["request_id"] == back["lost"][0]["request_id"]


def test_iteration_level_scheduling_surely_beats_static_batches() -> None:
    ttft = compare("static+contiguous", "continuous+paged")["metrics"]["ttft_s.mean"]
    assert ttft["seeds"] == 10
    assert ttft["low"] <= ttft["difference"] <= ttft["high"] < 0


def test_each_side_is_what_replay_alone_finds() -> None:
    sides = {"a": "sglang", "b": "tgi"}
    found = compare(*sides.values(), *COMPUTED)
    for side, preset in sides.items():
        options = ("--preset", preset, *COMPUTED, "--json")
        alone = json.loads(servetwin("replay", SAMPLE, *with_server(*options)).out)
        assert found[side]["policies"] == alone["policies"]
        for name, metric in found["metrics"].items():
            assert metric[side] == figure(alone, name)


@pytest.mark.parametrize(
    ("options", "seeds"),
    [
        ((), 10),
        (("--replications", 0), 1),
        (("--replications", 3), 3),
        (COMPUTED, 1),
        ((*COMPUTED, "--replicas", 3), 1),
        ((*COMPUTED, "--replicas", 3, "--router", "random"), 10),
    ],
)
def test_as_many_seeds_as_tell_something(options: tuple[object, ...], seeds: int) -> None:
    found = compare("continuous", "max_seqs=8", *options, "--limit", 20)
    assert {metric["seeds"] for metric in found["metrics"].values()} == {seeds}


def test_servers_are_compared_as_policies_are() -> None:
    found = compare("replicas=1", "replicas=2+router=least-tokens", "--replications", 1)
    assert found["a"]["cluster"]["replicas"] == 1
    assert (found["b"]["cluster"]["replicas"], found["b"]["cluster"]["router"]) == (
        2,
        "least-tokens",
    )
    assert found["metrics"]["e2e_s.mean"]["difference"] < 0, "two servers are faster than one"


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        ("static+contiguous", "vllm-v1", ()),
        ("distserve", "splitwise+prefill_replicas=2", COMPUTED),
        ("static+contiguous+reservation=pow2", "chunked+paged+prefix+eviction=lfu", TIGHT),
        ("fastertransformer", "replicas=12+router=session-affinity", ()),
    ],
)
def test_the_text_fits_100_columns(a: str, b: str, options: tuple[object, ...]) -> None:
    lines = text(a, b, *options, "--replications", 2)
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("profile ")
    sides = [line for line in lines if line[:4] in ("A = ", "B = ")]
    assert [side.partition(": ")[0] for side in sides] == [f"A = {a}", f"B = {b}"]
    assert len([line for line in lines if line.startswith(("ttft ", "tpot ", "e2e "))]) == 12
    heads = [line.partition(" (") for line in lines if line.startswith("requests that ")]
    assert [head for head, *_ in heads] == ["requests that gained most", "requests that lost most"]
    assert {unit for *_, unit in heads} <= {"E2E latency, ms):", "E2E latency, s):"}


@pytest.mark.parametrize(
    ("options", "drawn", "seeds"),
    [
        (("--replications", 4), True, "4 seeds, same load and noise on both sides (common"),
        (("--replications", 1), True, "one seed, same load and noise on both sides: no intervals"),
        (COMPUTED, False, "one seed, same load and noise on both sides: no intervals"),
        ((*COMPUTED, "--replications", 2), False, "2 seeds, same load"),
    ],
)
def test_the_text_says_what_was_drawn(options: tuple[object, ...], drawn: bool, seeds: str) -> None:
    lines = text("continuous", "continuous", *options, "--limit", 20)
    assert any(line.startswith(seeds) for line in lines[:5])
    assert any(line.startswith("nothing is random here") for line in lines) is not drawn
    assert lines.count("  none") == 2, "no request gained and none lost"


def test_a_folder_keeps_a_run_of_each_side(tmp_path: Path) -> None:
    options = ("--replications", 1, "--profile", SHEET_PROFILE, "--profile", "base-cpu")
    found = compare("vllm-v1", "tgi", *options, "--out", tmp_path)
    for side in "ab":
        run = load_run(tmp_path / side)
        assert run.scenario["profile"] == [SHEET_PROFILE, "base-cpu"]
        assert run.scenario["policies"] == found[side]["policies"]
        assert run.scenario["cluster"] == found[side]["cluster"]
        mean_s = run.requests["e2e_s"].mean()
        assert mean_s == pytest.approx(found["metrics"]["e2e_s.mean"][side])
