"""``verify --recorded`` and ``calibrate --recorded``: real GPU servers, and a made one."""

import json
from pathlib import Path

import pytest

from servetwin.app.reports.report_folders import find_runs
from servetwin.app.reports.run_words import recorded_words
from servetwin.loadtest.recorded.recorded_run import load_recorded_run
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import find_preset
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.request import Request
from servetwin.workloads.transform import limit
from tests.support.command import Done, refused, servetwin
from tests.support.layer_bundles import write_bundle
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
