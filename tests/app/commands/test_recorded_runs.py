"""``verify --recorded`` and ``calibrate --recorded``: real GPU servers, and a made one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from servetwin.app.reports.report_folders import find_runs
from servetwin.app.reports.run_words import recorded_words
from servetwin.loadtest.recorded.recorded_run import load_recorded_run
from servetwin.policies.batch import BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import find_preset
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import FloatArray, LinearStepTime
from servetwin.sim.step_times.tables.layer_table import as_one_chunk
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.request import Request
from servetwin.workloads.transform import limit
from tests.support.command import Done, refused, servetwin
from tests.support.layer_bundles import attention_us, head_us, layer_us, once_us, write_bundle
from tests.support.paths import GPU_RUNS

RTX_4090 = GPU_RUNS / "rtx4090-llama-3.1-8b"
RTX_PRO = GPU_RUNS / "rtxpro6000-llama-3.1-8b"
LIMITS = {
    RTX_4090: ("--set", "max_seqs=256", "--set", "token_budget=2048", "--set", "kv_tokens=41408"),
    RTX_PRO: ("--set", "max_seqs=128", "--set", "token_budget=2048"),
}
TRUTH = {
    "constant": 4e-2, "rows_from_0": 4e-5, "rows_from_256": 2e-4, "decode_context_tokens": 4e-7,
    "prefill_pairs": 4e-9,
}  # fmt: skip


def imported(folder: Path, out: Path) -> Path:
    if not folder.exists():
        pytest.skip(f"{folder} is missing: real runs are not part of the repository")
    assert servetwin("loadtest", "import", folder / "measured.jsonl", "--out", out).code == 0
    return out


def errors(found: dict[str, dict[str, dict[str, float]]], *points: str) -> dict[str, list[float]]:
    return {
        name: [100 * abs(found[name][point]["error"]) for point in points]
        for name in ("ttft_s", "tpot_s", "e2e_s")
    }


def predicted_by_layers(folder: Path, tmp_path: Path) -> Done:
    return servetwin(
        "verify", "--recorded", imported(folder, tmp_path / "run"), "--model", "llama-3.1-8b",
        "--times", f"layers:{folder / 'layers'}", "--preset", "vllm-v1", *LIMITS[folder], "--json",
    )  # fmt: skip


@pytest.mark.slow
def test_layer_times_predict_an_rtx_4090_through_its_preemptions(tmp_path: Path) -> None:
    done = predicted_by_layers(RTX_4090, tmp_path)
    assert done.code == 0
    found = json.loads(done.out)
    assert (found["outcome"], found["preemptions"] > 150) == ("holds", True)
    for name, off in errors(found["metrics"], "mean", "p50", "p90").items():
        assert max(off) < 0.5, name


@pytest.mark.slow
def test_why_names_no_setting_where_a_data_sheet_is_near(tmp_path: Path) -> None:
    """A prediction that is 3 % off needs no wrong setting to explain it."""
    done = servetwin(
        "verify", "--recorded", imported(RTX_PRO, tmp_path / "run"), "--model", "llama-3.1-8b",
        "--hardware", "rtx-pro-6000", "--preset", "vllm-v1", *LIMITS[RTX_PRO], "--why", "--json",
        "--out", tmp_path / "why",
    )  # fmt: skip
    why = json.loads(done.out)["why"]
    assert why["hypotheses"][0]["name"] == "as stated"
    assert why["notes"][0] == "requests were sent late by 0 ms (p99)"
    report = servetwin("report", tmp_path / "why", "--out", tmp_path / "why.html")
    assert report.code == 0
    page = (tmp_path / "why.html").read_text()
    assert "No setting explains the measurements clearly better than as stated." in page


@pytest.mark.slow
def test_layer_times_predict_an_rtx_pro_6000(tmp_path: Path) -> None:
    done = predicted_by_layers(RTX_PRO, tmp_path)
    assert done.code == 0
    off = errors(json.loads(done.out)["metrics"], "mean")
    assert off["ttft_s"][0] < 3
    assert off["tpot_s"][0] < 1.5
    assert off["e2e_s"][0] < 2


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "later"), [(RTX_4090, 1.5), (RTX_PRO, 1.0)])
def test_half_of_a_log_predicts_the_other_half(folder: Path, later: float, tmp_path: Path) -> None:
    run = imported(folder, tmp_path / "run")
    profile = tmp_path / "profile.json"
    done = servetwin(
        "calibrate", "--recorded", run, "--until", "50%", "--preset", "vllm-v1", *LIMITS[folder],
        "--out", profile, "--json",
    )  # fmt: skip
    assert done.code == 0
    found = json.loads(done.out)
    assert found["fitted_requests"] == 150
    assert 100 * max(map(abs, found["held_out_errors"].values())) < later
    judged = servetwin("verify", "--recorded", run, "--profile", profile, "--json")
    assert judged.code == 0
    whole = errors(json.loads(judged.out)["metrics"], "mean")
    assert max(off[0] for off in whole.values()) < 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run of a made server: 16 sequences, steps of ``TRUTH``."""
    folder = tmp_path_factory.mktemp("made")
    limits = {"max_seqs": 16, "token_budget": 2048, "kv_tokens": 1 << 40}
    config = PolicyConfig(**{**find_preset("vllm-v1").policies, **limits})
    trace = limit(sample_trace(), 120)
    requests = [
        Request(one.request_id, 0.02 * at, one.prompt_tokens, one.output_tokens)
        for at, one in enumerate(trace)
    ]
    run = simulate(requests, build_scheduler(config), LinearStepTime.of(TRUTH))
    names = ("first_token_s", "last_token_s", "prompt_tokens", "output_tokens")
    lines = [
        json.dumps({"request_id": row["request_id"], "arrival_s": row["scheduled_s"]}
                   | {"scheduled_s": row["scheduled_s"] + row["queue_s"]}
                   | {name: row[name] for name in names})
        for row in run.requests.to_dict("records")
    ]  # fmt: skip
    (folder / "stamps.jsonl").write_text("\n".join(lines))
    out = folder / "run"
    assert servetwin("loadtest", "import", folder / "stamps.jsonl", "--out", out).code == 0
    return out


SERVER = ("--preset", "vllm-v1", "--set", "max_seqs=16")


@pytest.fixture(scope="module")
def fitted(made: Path) -> Path:
    profile = made.parent / "profile.json"
    done = servetwin("calibrate", "--recorded", made, *SERVER, "--out", profile)
    assert done.code == 0
    assert "fitted to the stamps of 120 of 120 requests" in done.out
    assert "not identified by this log" in done.out
    assert "at most 16 requests ran at once" in done.out
    assert "times with others waiting (max_seqs 16)" in done.out
    return profile


@pytest.mark.slow
def test_a_fit_finds_a_made_server(made: Path, fitted: Path) -> None:
    done = servetwin("verify", "--recorded", made, "--profile", fitted, "--json")
    found = json.loads(done.out)
    assert (done.code, found["outcome"]) == (0, "holds")
    for name, off in errors(found["metrics"], "mean").items():
        assert off[0] < 1, name


@pytest.mark.slow
def test_a_profile_of_another_speed_is_refuted(made: Path, fitted: Path) -> None:
    profile = json.loads(fitted.read_text())
    fit = profile["layouts"]["paged"]
    for values in (fit["coefficients"], *fit["draws"]):
        for key in range(len(values)) if isinstance(values, list) else values:
            values[key] *= 1.3
    slower = made.parent / "slower.json"
    slower.write_text(json.dumps(profile))
    done = servetwin("verify", "--recorded", made, "--profile", slower)
    assert done.code == 1
    assert "VERDICT: REFUTED" in done.out


@pytest.mark.slow
def test_terminal_and_report_say_the_same_of_a_trial(
    made: Path, fitted: Path, tmp_path: Path
) -> None:
    out, page = tmp_path / "trial", tmp_path / "page.html"
    done = servetwin("verify", "--recorded", made, "--profile", fitted, "--out", out)
    assert servetwin("report", out, "--out", page).code == 0
    terminal, report = (" ".join(text.split()) for text in (done.out, page.read_text()))
    (trial,) = find_runs([out])[1]
    reason = "1 recorded run places every judged error within its limit."
    assert f"The prediction holds: {reason}" in terminal
    for said in (recorded_words(trial.measured[0].run), "The prediction holds", reason):
        assert said in terminal
        assert said in report
    assert trial.load == "120 requests, 1 recorded run"
    assert "load test of an endpoint" not in report
    assert "at None" not in report


@pytest.mark.slow
def test_a_verdict_keeps_both_runs(made: Path, fitted: Path, tmp_path: Path) -> None:
    done = servetwin(
        "verify", "--recorded", made, "--profile", fitted, "--out", tmp_path / "verdict"
    )
    assert "run folder:" in done.out
    measured = load_recorded_run(tmp_path / "verdict" / "measured")
    assert len(measured.run.requests) == 120
    assert (tmp_path / "verdict" / "predicted" / "summary.json").exists()


@pytest.mark.slow
def test_tensor_parallel_layer_times_need_a_link(made: Path, tmp_path: Path) -> None:
    layers = write_bundle(tmp_path / "layers", ranks=2)
    server = (
        "verify",
        "--recorded",
        made,
        "--model",
        "llama-3.1-8b",
        "--times",
        f"layers:{layers}",
        *SERVER,
    )
    assert "layer times of 2 ranks hold no messages between them" in refused(*server)
    done = servetwin(*server, "--link-us", 5, "--link-gb-per-s", 50, "--json")
    assert done.code in (0, 1, 3)
    assert json.loads(done.out)["metrics"]["tpot_s"]["mean"]["predicted"] > 0


def test_what_does_not_go_together_is_refused(made: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "p.json")
    cases = {
        ("verify", "--recorded", made): "say what served the run",
        ("verify", "--times", "layers:x"): "--times: goes with --recorded",
        ("verify", "--preset", "vllm-v1"): "--preset: goes with --recorded",
        ("calibrate", "--hardware", "h100", *out): "--gpu: goes with --recorded",
        ("verify", "--recorded", made, "--trace", tmp_path): "--trace: sends a load; --recorded",
        ("verify", "--recorded", made, "--url", "http://x"): "--url: sends a load",
        ("calibrate", "--recorded", made, "--url", "http://x", *out): "--url: sends a load",
        ("calibrate", "--recorded", made, "--until", "half", *out): "--until: 'half' is not a",
        ("calibrate", "--recorded", made, "--until", "30%", *out): "needs at least 50",
        ("verify", "--recorded", tmp_path, "--profile", "base-cpu"): "not a readable run folder",
    }  # fmt: skip
    for arguments, says in cases.items():
        assert says in refused(*arguments), arguments


def test_a_run_of_few_requests_is_not_judged(tmp_path: Path, made: Path) -> None:
    few = tmp_path / "few.jsonl"
    lines = (made.parent / "stamps.jsonl").read_text().splitlines()
    few.write_text("\n".join(lines[:20]))
    servetwin("loadtest", "import", few, "--out", tmp_path / "few")
    line = refused("verify", "--recorded", tmp_path / "few", "--profile", "base-cpu")
    assert "20 finished requests; at least 30 are needed" in line


LINK_US, LINK_GB_PER_S = 5.0, 20.0
LINK = ("--link-us", LINK_US, "--link-gb-per-s", LINK_GB_PER_S)
BUNDLE_LIMITS = {"max_seqs": 64, "token_budget": 1024, "kv_tokens": 60_000}
SETTINGS = (
    "--preset",
    "vllm-v1",
    *(f for s in BUNDLE_LIMITS.items() for f in ("--set", "{}={}".format(*s))),
)
MOE = find_model("qwen3-30b-a3b")
IMBALANCE = 1.2


def experts_us(rows: float, reached: float) -> float:
    return 20.0 + 0.4 * rows + 1.5 * reached


@dataclass(frozen=True)
class Truth:
    """Two GPUs by formulas: each rank alone, then messages and experts of all of them."""

    layers: int
    width: int
    ranks: int

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        return self.group_seconds([shape], steps)

    def group_seconds(self, shapes: Sequence[BatchShape], steps: int = 1) -> FloatArray:
        busy = [shape for shape in shapes if shape.rows]
        rows = len(shapes) - len(busy) + sum(shape.rows for shape in busy)
        message_us = 2 * LINK_US + rows * self.width * 2 / (1e3 * LINK_GB_PER_S)
        shared_us = (2 * self.layers + 1) * message_us
        if self.ranks > 1:  # an all-gather and a reduce-scatter, and the busiest device's experts
            reached = 128 * (1 - (1 - 8 / 128) ** rows) / 2
            shared_us = self.layers * (message_us + experts_us(IMBALANCE * rows, reached))
        ends = max(once_us(one.rows) + head_us(one.sequences) for one in busy)
        return 1e-6 * np.array([
            max(self.layers * (layer_us(one.rows) + attended_us(one, step)) for one in busy)
            + shared_us + ends
            for step in range(steps)
        ])  # fmt: skip


def attended_us(shape: BatchShape, step: int) -> float:
    decodes = shape.decode_sequences
    context = (shape.decode_context_tokens + step * shape.decode_growing) / max(1, decodes) - 1
    rows, start = as_one_chunk(shape.prefill_chunks) if shape.prefill_chunks else (0.0, 0.0)
    return attention_us(rows, start, decodes, context if decodes else 0.0)


def record(path: Path, truth: Truth) -> Path:
    """Write the stamps of an engine that served 60 requests, 6 to a second."""
    rng = np.random.default_rng(3)
    arrivals_s = np.cumsum(rng.exponential(1 / 6, 60))
    requests = [
        Request(str(i), float(at_s), int(rng.integers(50, 900)), int(rng.integers(20, 90)))
        for i, at_s in enumerate(arrivals_s)
    ]
    config = PolicyConfig(
        **{**find_preset("vllm-v1").policies, **BUNDLE_LIMITS, "max_model_len": 4096}
    )
    pool = Pool(config, truth, ranks=truth.ranks)
    frame = simulate_cluster(requests, [pool], RouterConfig("vllm-dp")).requests
    rows = frame.assign(
        arrival_s=frame["scheduled_s"], scheduled_s=frame["scheduled_s"] + frame["queue_s"]
    )
    columns = ["request_id", "arrival_s", "scheduled_s", "first_token_s", "last_token_s"]
    path.write_text(
        rows[[*columns, "prompt_tokens", "output_tokens"]].to_json(orient="records", lines=True)
    )
    return path


@pytest.fixture(scope="module")
def expert_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with dense layers of one and two GPUs, and experts of a device of two."""
    folder = write_bundle(write_bundle(tmp_path_factory.mktemp("moe") / "layers"), ranks=2)
    counts = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2560]
    reached = [1, 4, 8, 16, 24, 32, 40, 48, 56, 64]
    rows = [(2, n, e, experts_us(n, e)) for n, e in product(counts, reached)]
    columns = ["ep", "tokens", "activated_experts", "time_us"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "tp1" / "moe.csv", index=False)
    return folder


def verified(recorded: Path, layers: Path, *options: object) -> dict[str, float]:
    done = servetwin(
        "verify",
        "--recorded",
        recorded,
        "--times",
        f"layers:{layers}",
        *options,
        *SETTINGS,
        "--json",
    )
    assert done.code in (0, 3), "with so few requests it may not be able to tell"
    metrics = json.loads(done.out)["metrics"]
    return {name: abs(metrics[name]["mean"]["error"]) for name in ("ttft_s", "tpot_s", "e2e_s")}


def test_a_run_with_tensor_parallel_is_predicted(tmp_path: Path) -> None:
    recorded = record(tmp_path / "measured.jsonl", Truth(32, 4096, 1))
    layers = write_bundle(tmp_path / "layers", ranks=2)
    server = ("--model", "llama-3.1-8b", "--layout", "tp=2", *LINK)
    assert max(verified(recorded, layers, *server).values()) < 0.005


def test_a_run_of_ranks_that_share_experts_is_predicted(
    tmp_path: Path, expert_layers: Path
) -> None:
    recorded = record(tmp_path / "measured.jsonl", Truth(48, MOE.width, 2))
    server = ("--model", "qwen3-30b-a3b", "--layout", "dp=2,ep=2", *LINK)
    right = verified(recorded, expert_layers, *server, "--imbalance", IMBALANCE)
    assert max(right.values()) < 0.005
    by_chance = verified(recorded, expert_layers, *server)
    assert by_chance["tpot_s"] > 0.01


def test_layouts_that_a_bundle_cannot_tell_are_refused(tmp_path: Path, expert_layers: Path) -> None:
    recorded = record(tmp_path / "measured.jsonl", Truth(48, MOE.width, 2))
    server = (
        "verify",
        "--recorded",
        recorded,
        "--times",
        f"layers:{expert_layers}",
        "--model",
        "qwen3-30b-a3b",
    )
    assert "tp1/moe.csv, of whole ones: --layout tp=2,ep=2" in refused(
        *server, "--layout", "tp=2", *LINK
    )
    assert "layer times of 2 ranks hold no messages" in refused(*server, "--layout", "dp=2,ep=2")
    assert "--layout: ep=3 does not divide" in refused(*server, "--layout", "dp=2,ep=3", *LINK)
