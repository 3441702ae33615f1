"""``servetwin replay``: the JSON that scripts read, notes, pictures, bad input in one line."""

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

pytest.importorskip("plotly", reason="pictures need plotly")
from servetwin.app.scenario.options.common import RunChart
from servetwin.sim.records.metrics import LATENCIES, MEANINGS
from tests.support.command import SERVER, refused, servetwin, with_server
from tests.support.effort import FULL, only_in_ci
from tests.support.paths import SAMPLE, TRACES

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def replay_json(*arguments: str) -> dict[str, Any]:
    done = servetwin("replay", *with_server(*arguments), "--json")
    assert done.code == 0, done.err
    summary: dict[str, Any] = json.loads(done.out)
    return summary


def test_json_has_the_promised_keys_and_every_request_finishes() -> None:
    summary = replay_json(str(SAMPLE), "--replications", "3")
    assert summary["requests"]["total"] == summary["requests"]["finished"] == 240
    assert {"refused", "failed"} <= set(summary["requests"])
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert {"mean", "p50", "p90", "p99"} <= set(summary[name])
        interval = summary["intervals"][f"{name}.mean"]
        assert interval["p5"] <= interval["median"] <= interval["p95"]
    assert {"wall_s", "requests_per_s", "steps"} <= set(summary["simulation"])
    assert summary["output_throughput_tokens_per_s"] > 0
    assert summary["prefix_hit_rate_tokens"] == summary["preemptions"] == 0
    assert set(summary["steady"]) == {*MEANINGS["steady"], *LATENCIES, "decode_tps", "request_tps"}
    assert summary["steady"]["unsettled"] is None


def test_the_first_visible_token_has_an_interval_where_requests_reason(tmp_path: Path) -> None:
    trace = tmp_path / "thinking.jsonl"
    row = {"prompt_tokens": 20, "output_tokens": 12, "reasoning_tokens": 8}
    rows = (json.dumps({"arrival_s": 0.5 * at, **row}) for at in range(40))
    trace.write_text("\n".join(rows))
    intervals = replay_json(str(trace), "--replications", "3")["intervals"]
    assert {"ttfo_s.mean", "ttfo_s.p99"} <= set(intervals)
    assert intervals["ttfo_s.mean"]["p5"] > intervals["ttft_s.mean"]["p95"]
    assert "task_s.mean" not in intervals


def test_prefix_cache_finds_the_groups_of_the_sample() -> None:
    summary = replay_json(str(SAMPLE), "--prefix-cache", "--replications", "0")
    assert 0.3 < summary["prefix_hit_rate_tokens"] < 0.6


def test_a_prefix_cache_that_cannot_hit_is_said(tmp_path: Path) -> None:
    asked = ["--prefix-cache", "--replications", "0", "--limit", "20"]
    assert "prefix cache" not in servetwin("replay", str(SAMPLE), *SERVER, *asked).err
    bare = tmp_path / "bare.jsonl"
    rows = [f'{{"arrival_s": {i}, "prompt_tokens": 20, "output_tokens": 2}}' for i in range(3)]
    bare.write_text("\n".join(rows))
    assert "prefix cache" not in servetwin("replay", str(bare), *SERVER, "--replications", "0").err
    assert servetwin("replay", str(bare), *SERVER, *asked).err == (
        "note: this trace cannot tell what the prefix cache does: no request has prefix ids; in a "
        "scenario file, workload.prefix_share or workload.conversations assumes some\n"
    )


def test_text_fits_100_columns_and_names_the_machine(tmp_path: Path) -> None:
    done = servetwin("replay", str(SAMPLE), *SERVER, "--out", str(tmp_path / "run"))
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 100
    assert "240 requests: 240 finished" in done.out
    assert "profile base-cpu (measured here: base on" in done.out
    whole, _, steady = done.out.partition("\nsteady part: from ")
    assert whole.count("\nTTFT ms") == 1
    assert "\nTTFT ms" in steady
    assert (tmp_path / "run" / "summary.json").is_file()


def test_an_overloaded_run_never_settles() -> None:
    done = servetwin("replay", str(SAMPLE), *SERVER, "--rate", "15", "--replications", "0")
    assert (
        "\nsteady part: none; never settles: the number in the system grows to the end" in done.out
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEADER + "2023-11-16 18:15:46.6805900,12,x\n", ":2: field 'GeneratedTokens'"),
        ("a,b,c\n1,2,3\n", ":1:"),
        ("", "empty"),
    ],
)
def test_a_bad_trace_is_one_line_and_exit_code_2(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    done = servetwin("replay", str(path), *SERVER)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert message in done.err


def test_a_truncated_gzip_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "cut.csv.gz"
    row = "2023-11-16 18:15:46.6805900,12,13\n"
    path.write_bytes(gzip.compress((HEADER + row * 9).encode())[:-12])
    done = servetwin("replay", str(path), *SERVER)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batching", "continous"], "did you mean 'continuous'?"),
        (["--profile", "base-cpuu"], "did you mean 'base-cpu'?"),
        (["--kv-tokens", "many"], "neither a number of tokens nor 'unlimited'"),
        (["--rate", "1", "--rate-scale", "2"], "exclude each other"),
        (["--prompt-scale", "-1"], "prompt"),
        (["--kv", "contiguous", "--prefix-cache"], "it must be false with kv: contiguous"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(options: list[str], message: str) -> None:
    done = servetwin("replay", str(SAMPLE), *with_server(*options))
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_request_that_never_fits_is_refused_and_the_rest_goes_on() -> None:
    summary = replay_json(str(SAMPLE), "--kv-tokens", "256", "--replications", "0")
    counts = summary["requests"]
    assert counts["refused"] > 0
    assert counts["refused"] + counts["finished"] == 240


POLICIES = list(product(["static", "continuous"], ["contiguous", "paged"]))
UNLIKE = [("static", "contiguous"), ("continuous", "paged")]
"""Two policies that have neither batching nor KV memory in common."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trace", "requests", "batching", "kv"),
    [
        *(("azure/AzureLLMInferenceTrace_code.csv.gz", 8_819, *policy) for policy in POLICIES),
        *(("azure/AzureLLMInferenceTrace_conv.csv.gz", 19_366, *policy) for policy in UNLIKE),
        *(("mooncake/conversation_trace.jsonl.gz", 12_031, *policy) for policy in UNLIKE),
    ],
)
def test_public_traces_run_whole_under_every_policy(
    trace: str, requests: int, batching: str, kv: str
) -> None:
    if not (TRACES / trace).is_file():
        pytest.skip(f"the public trace {trace} is not here")
    policy = ["--batching", batching, "--kv", kv, "--replications", "0"]
    limit = requests + 1 if FULL else 1_000
    summary = replay_json(str(TRACES / trace), *policy, "--limit", str(limit))
    assert summary["requests"]["finished"] == min(requests, limit)


@pytest.mark.slow
@only_in_ci
def test_mooncake_hit_rate_with_unlimited_memory() -> None:
    trace = TRACES / "mooncake/conversation_trace.jsonl.gz"
    if not trace.is_file():
        pytest.skip("the public Mooncake trace is not here")
    unlimited = ["--prefix-cache", "--kv-tokens", "unlimited", "--replications", "0"]
    summary = replay_json(str(trace), *unlimited)
    assert summary["requests"]["finished"] == 12_031
    assert round(summary["prefix_hit_rate_tokens"], 4) == 0.3736


REPLAY = ("replay", SAMPLE, *SERVER, "--limit", 20, "--replications", 0)
COMPARE = ("replay", "compare", "static", "vllm-v1", *REPLAY[1:])


@pytest.mark.parametrize("chart", get_args(RunChart))
def test_every_chart_of_a_run_can_be_drawn(chart: RunChart, tmp_path: Path) -> None:
    path = tmp_path / "c.html"
    done = servetwin(*REPLAY, "--plot", path, "--chart", chart)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1].startswith(f"picture: {path}, ")
    page = path.read_text()
    assert "20 generated requests" in page
    assert "servetwin replay" not in page, "a figure of a paper has no command"
    assert str(SAMPLE.parent) not in page


def test_two_policies_are_in_one_picture(tmp_path: Path) -> None:
    path = tmp_path / "c.html"
    done = servetwin(*COMPARE, "--plot", path)
    assert done.code == 0, done.err
    assert {'"name":"static"' in path.read_text(), '"name":"vllm-v1"' in path.read_text()} == {True}
    done = servetwin(
        "replay", "compare", "static", "static", *REPLAY[1:], "--plot", path, "--overwrite"
    )
    assert '"name":"B: static"' in path.read_text()


def test_the_run_is_kept_and_stdout_stays_json(tmp_path: Path) -> None:
    path, out = tmp_path / "c.html", tmp_path / "run"
    done = servetwin(*REPLAY, "--plot", path, "--out", out, "--json")
    assert json.loads(done.out)["requests"]["finished"] == 20
    assert f"picture: {path}" in done.err
    assert (out / "summary.json").exists()
    assert "is there; --overwrite replaces it" in refused(*REPLAY, "--plot", path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--chart", "tpot"], "--chart: goes with --plot"),
        (["--dark"], "--dark: goes with --plot"),
        (["--plot", "c.gif"], "unknown extension '.gif'"),
        (["--plot", "c.html", "--chart", "none"], "'none' is not one of"),
        (["--plot", "nowhere/c.html"], "there is no folder nowhere"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_before_the_simulation(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(*REPLAY, *options)
    two_runs = refused(*COMPARE, "--plot", "c.html", "--chart", "requests")
    assert "shows one run, and there are 2" in two_runs
    assert not list(tmp_path.iterdir())
