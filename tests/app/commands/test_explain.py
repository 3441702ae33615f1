"""``servetwin explain``: words, tables, JSON and the export, on a run that ``replay`` wrote."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from servetwin.app.reports.explanation import explanation_lines, slowest_lines, verdict
from servetwin.sim.explain.explain import PARTS, Explanation, Neighbours
from tests.support.command import SERVER, servetwin
from tests.support.paths import SAMPLE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("explain") / "run"
    done = servetwin(
        "replay", SAMPLE, *SERVER, "--kv-tokens", 2048, "--replications", 0, "--out", out
    )
    assert done.code == 0, done.err
    return out


def explanation(e2e_s: float | None = 10.0, **changes: Any) -> Explanation:
    delays_s = changes.pop("parts_s", {})
    own_s = (e2e_s or 0.0) - sum(delays_s.values())
    values: dict[str, Any] = {
        "request_id": "r1", "status": "finished", "error": "", "scheduled_s": 1.0, "ttft_s": 2.0,
        "tpot_s": 0.1, "e2e_s": e2e_s, "prompt_tokens": 100, "output_tokens": 50,
        "cached_tokens": 32, "preemptions": 0, "replica": 0,
        "parts_s": {**dict.fromkeys(PARTS, 0.0), "decode": own_s, **delays_s},
        "waited_s": delays_s.get("queue", 0.0), "cause": None, "neighbours": Neighbours(14, 3, 4.5),
        "notes": (), **changes,
    }  # fmt: skip
    return Explanation(**values)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "no queueing delay: 10 s of 10 s was its own compute"),
        ({"parts_s": {"queue": 0.9}}, "no queueing delay: 9.1 s of 10 s"),
        (
            {"parts_s": {"queue": 1.2}, "cause": "memory"},
            "waited 1.2 s of its 2 s TTFT because 14 requests were ahead of it and the KV memory "
            "was full",
        ),
        (
            {"parts_s": {"queue": 1.2}, "cause": "step", "neighbours": Neighbours(1, 3, 4.5)},
            "because 1 request was ahead of it and a step was running",
        ),
        (
            {"parts_s": {"queue": 1.2}, "cause": "filling", "neighbours": Neighbours(0, 0, 1.0)},
            "TTFT because its batch was filling",
        ),
        (
            {"parts_s": {"queue": 3.0, "transfer": 1.0}, "waited_s": 0.5},
            "waited 2.5 s for a slot on the decode replica",
        ),
        (
            {"parts_s": {"stalled": 4.0}},
            "prefills of other requests stalled its decoding for 4 s of 10 s",
        ),
        (
            {"parts_s": {"preempted": 4.0}, "preemptions": 2},
            "preempted 2 times: 4 s of 10 s to get back to where it was",
        ),
        ({"parts_s": {"preempted": 4.0}, "preemptions": 1}, "preempted once: 4 s"),
        (
            {"parts_s": {"transfer": 4.0}},
            "its KV cache took 4 s of 10 s to move to another replica",
        ),
        ({"parts_s": {"api": 4.0}}, "the HTTP server took 4 s of 10 s"),
        (
            {"e2e_s": None, "parts_s": {}, "status": "refused", "error": "queue_full: 4 wait"},
            "refused: queue_full: 4 wait",
        ),
        ({"status": "failed", "error": "timeout"}, "failed: timeout"),
    ],
)
def test_the_verdict_names_the_delay_that_cost_most(changes: dict[str, Any], words: str) -> None:
    assert words in verdict(explanation(**changes))


def test_the_table_has_every_part_with_a_bar_as_long_as_its_share() -> None:
    found = explanation(parts_s={"queue": 5.0, "stalled": 2.5}, notes=("stalls are estimated",))
    lines = explanation_lines(found)
    table = {line.split()[0]: line for line in lines if line.split()[:1]}
    assert table["queue"].split() == ["queue", "5.0000", "50.0", "%", "█" * 20]
    assert table["stalled"].split()[1:] == ["2.5000", "25.0", "%", "█" * 10]
    assert table["api"].split() == ["api", "0.0000", "0.0", "%"]
    assert set(PARTS) <= set(table)
    assert "3 running, 14 waiting; it decoded in batches of 4.5" in "\n".join(lines)
    assert "32 of 100 prompt tokens came from the prefix cache" in "\n".join(lines)
    assert lines[-1] == "note: stalls are estimated"
    assert max(map(len, lines)) <= 100


def test_a_load_test_is_put_in_words_without_blame() -> None:
    parts_s = {"send_lag": 0.05, "first_token": 0.75, "streaming": 3.0}
    found = explanation(parts_s={}, waited_s=None)
    outside = Explanation(**{n: getattr(found, n) for n in found.__slots__} | {"parts_s": parts_s})
    assert verdict(outside) == (
        "the client sent it 0.05 s late; its first token took 0.75 s, the rest of its answer 3 s"
    )


def test_nothing_finished_means_nothing_to_rank() -> None:
    assert slowest_lines([]) == ["no request finished"]


def test_a_request_is_explained_in_parts_that_sum_to_its_latency(folder: Path) -> None:
    slow = pd.read_parquet(folder / "requests.parquet").nlargest(1, "e2e_s").iloc[0]
    done = servetwin("explain", folder, slow["request_id"], "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert set(found["parts_s"]) == set(PARTS)
    assert sum(found["parts_s"].values()) == pytest.approx(slow["e2e_s"], abs=1e-9)
    assert found["notes"] == [], "the profile that replay used is known by its name"
    assert found["parts_s"]["api"] > 0
    text = servetwin("explain", folder, slow["request_id"]).out
    assert found["verdict"] in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_slowest_are_listed_with_their_verdicts(folder: Path) -> None:
    found = json.loads(servetwin("explain", folder, "--slowest", 3, "--json").out)
    latencies_s = [one["e2e_s"] for one in found]
    assert latencies_s == sorted(latencies_s, reverse=True)
    text = servetwin("explain", folder, "--slowest", 3).out
    for one in found:
        assert f"{one['request_id']}: {one['verdict']}"[:60] in text


def test_the_export_is_json_and_a_window_makes_it_smaller(folder: Path, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.json", tmp_path / "part.json"
    done = servetwin("explain", folder, "--trace-export", whole, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {
        "file": str(whole),
        "events": len(json.loads(whole.read_text())),
    }
    window = ("--start", 10, "--end", 12)
    assert servetwin("explain", folder, "--trace-export", part, *window).code == 0
    assert 0 < len(json.loads(part.read_text())) < len(json.loads(whole.read_text()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of a request ID, --slowest N or --trace-export FILE"),
        (["generated:1", "--slowest", "2"], "give one of"),
        (["generated:1x"], "did you mean 'generated:1'"),
        (["generated:1", "--start", "2"], "--start and --end are the window of --trace-export"),
        (["--trace-export", "t.json", "--start", "3", "--end", "2"], "--start 3 must be before"),
        (["--trace-export", "no/such/place.json"], "cannot be written"),
    ],
)
def test_bad_questions_are_one_line_and_exit_code_2(
    folder: Path, arguments: list[str], message: str
) -> None:
    done = servetwin("explain", folder, *arguments)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert message in done.err


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    done = servetwin("explain", tmp_path, "r1")
    assert done.code == 2
    assert "not a readable run folder" in done.err


def test_stamps_that_say_nothing_have_a_verdict_of_their_own() -> None:
    unknown = replace(explanation(), parts_s={})
    assert verdict(unknown) == "finished: its stamps do not say where its time went"
