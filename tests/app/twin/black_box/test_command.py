"""``calibrate --url`` and ``verify --url`` over HTTP, on a simulated server in real time."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from app.text.report_folders import find_runs
from app.twin.black_box.sender import LiveSender
from loadtest.endpoint import probe
from sim.records.run import load_run
from sim.step_times.profile import Profile, StepTimeFit, load_profile
from tests.benchmarks.black_box import served
from tests.support.command import refused, servetwin
from workloads.native import write_trace
from workloads.request import Request
from workloads.trace import Trace

POLICIES = {
    "batching": "chunked",
    "max_model_len": 200,
    "max_seqs": 4,
    "token_budget": 64,
    "kv_tokens": 1024,
}
SETTINGS = {"max_model_len", "batching", "token_budget", "max_seqs", "prefix_cache", "kv_tokens"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose steps take 3 ms and 20 us per row."""
    profile = Profile(
        name="fast",
        origin="computed",
        machine={},
        engine={"model": "fast"},
        policies=POLICIES,
        layouts={"paged": StepTimeFit(coefficients={"constant": 0.003, "rows_from_0": 2e-5})},
    )
    path = tmp_path_factory.mktemp("server") / "fast.json"
    profile.save(path)
    with served(f"--simulated {path}") as at:
        yield at


def test_the_sender_stamps_every_token_and_counts_failures(url: str) -> None:
    send = LiveSender(probe(url))
    burst = send([Request("b", 0.0, 12, 5), Request("a", 0.0, 8, 3)], 20.0)
    assert [len(answer.stamps_s) for answer in burst.answers] == [5, 3]
    assert [answer.prompt_tokens for answer in burst.answers] == [12, 8]
    assert not burst.messages
    assert send.round_trip_s() > 0
    too_long = send([Request("c", 0.0, 500, 5)], 20.0)
    assert set(too_long.messages) == {"http_4xx"}
    assert too_long.answers[0].stamps_s == ()


def test_text_is_asked_in_words_so_that_the_server_counts_tokens(url: str) -> None:
    send = LiveSender(probe(url, prompt="text"))
    for words in (8, 20):
        send([Request(f"w{words}", 0.0, words, 2)], 20.0)
    _, per_word = send.token_line()
    assert per_word > 0
    (answer,) = send([Request("long", 0.0, 100, 2)], 20.0).answers
    assert abs(answer.prompt_tokens - 100) < 25


def test_calibrate_writes_what_it_learned_and_what_it_did_not(url: str, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    limits = ("--max-minutes", 0.25, "--max-requests", 80, "--rounds", 1)
    done = servetwin("calibrate", "--url", url, "--out", out, *limits)
    assert done.code == 0, done.err
    profile = load_profile(str(out))
    found = profile.engine["identified"]
    assert {*found["identified"], *found["not identified"]} >= SETTINGS
    assert found["identified"]["max_model_len"] == 200
    assert profile.origin == "measured"
    assert profile.machine["endpoint"].startswith("127.0.0.1:")
    assert f"profile: {out}" in done.out


def test_verify_takes_any_endpoint_and_judges(url: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    requests = [Request(str(i), 0.05 * i, 10 + i, 4) for i in range(20)]
    write_trace(Trace(tuple(requests), "t"), trace)
    options = ("--max-minutes", 0.25, "--max-requests", 80, "--repeats", 1)
    at = ("verify", "--url", url, "--trace", trace)
    done = servetwin(*at, *options, "--utilisation", 0.5, "--out", tmp_path / "v")
    (folder,) = (tmp_path / "v").iterdir()
    verdict = json.loads((folder / "verdict.json").read_text())
    assert done.code == (not verdict["holds"]), done.err
    assert "calibrating as a black box" in done.err
    assert "VERDICT: " in done.out
    assert folder.name == verdict["policy"]
    (level,) = verdict["levels"]
    assert level["utilisation"] == 0.5
    assert verdict["comparison"] == level["comparison"]
    assert load_run(folder / "at-50" / "predicted").kind == "simulation"
    assert load_run(folder / "at-50" / "measured-1").kind == "loadtest"
    _, (trial,) = find_runs([tmp_path / "v"])
    assert json.loads(json.dumps(trial.comparison.as_dict())) == level["comparison"]


def test_requests_that_the_endpoint_cannot_take_are_counted(url: str, tmp_path: Path) -> None:
    trace = tmp_path / "long.jsonl"
    lengths = [10] * 18 + [190, 250]
    write_trace(
        Trace(tuple(Request(str(i), 0.1 * i, n, 20) for i, n in enumerate(lengths)), "t"), trace
    )
    line = refused("verify", "--url", url, "--outside", "--trace", trace)
    assert "2 of 20 requests are longer than the 200 tokens" in line


def test_nobody_there_is_one_line() -> None:
    done = servetwin("calibrate", "--url", "http://127.0.0.1:9")
    assert done.code == 1
    assert "is the server running?" in done.err
    assert len(done.err.splitlines()) == 1
