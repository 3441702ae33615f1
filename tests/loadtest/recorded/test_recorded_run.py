"""The run folder of a recorded run, and the trace in it."""

import json
from pathlib import Path

import pytest

from servetwin.loadtest.recorded.reading import read_recording
from servetwin.loadtest.recorded.recorded_run import TRACE, as_recorded_run, load_recorded_run
from servetwin.sim.records.run import Run, RunError, load_run
from tests.support import recorded_files as files
from tests.support.command import refused, servetwin


@pytest.fixture
def stamps(tmp_path: Path) -> Path:
    path = tmp_path / "measured.jsonl"
    records = [json.loads(line) for line in files.engine_stamps().splitlines()]
    records[0] |= {"prefix_block_ids": [7, 8, 9], "block_tokens": 32}
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_a_folder_keeps_run_and_trace(stamps: Path, tmp_path: Path) -> None:
    recorded = as_recorded_run(read_recording(stamps), "measured")
    recorded.save(tmp_path / "run")
    again = load_recorded_run(tmp_path / "run")
    assert again.trace.requests == recorded.trace.requests
    assert again.trace.requests[0].prefix_block_ids == (7, 8, 9)
    assert again.run.summary()["ttft_s"] == recorded.run.summary()["ttft_s"]
    assert load_run(tmp_path / "run").scenario["recorded_by"] == "stamps of the engine"


def test_a_load_test_of_ours_is_a_recorded_run_too(stamps: Path, tmp_path: Path) -> None:
    as_recorded_run(read_recording(stamps), "measured").save(tmp_path / "run")
    (tmp_path / "run" / TRACE).unlink()
    found = load_recorded_run(tmp_path / "run").trace
    assert [(r.prompt_tokens, r.output_tokens) for r in found] == [(100, 4), (200, 3), (50, 2)]


def test_a_simulation_is_no_recorded_run(stamps: Path, tmp_path: Path) -> None:
    measured = as_recorded_run(read_recording(stamps), "measured").run
    Run("simulation", measured.requests, measured.steps, {}).save(tmp_path / "sim")
    with pytest.raises(RunError, match="a simulation; a recorded run was measured"):
        load_recorded_run(tmp_path / "sim")


def test_import_prints_the_latencies_and_what_lacks(stamps: Path, tmp_path: Path) -> None:
    done = servetwin("loadtest", "import", stamps, "--out", tmp_path / "run")
    assert (done.code, done.err) == (0, "")
    assert "measured.jsonl: stamps of the engine" in done.out
    assert "note: stamps inside the engine: no HTTP latency" in done.out
    assert "3 requests: 3 finished" in done.out
    again = ("--out", tmp_path / "run", "--overwrite")
    as_json = json.loads(servetwin("loadtest", "import", stamps, *again, "--json").out)
    assert as_json["ttft_s"]["mean"] == pytest.approx((0.25 + 0.5 + 0.125) / 3)


def test_import_maps_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(files.csv())
    done = servetwin(
        "loadtest", "import", path, "--map", files.CSV_MAP, "--out", tmp_path / "run", "--json"
    )
    assert json.loads(done.out)["e2e_s"]["mean"] == pytest.approx((0.75 + 1.0 + 0.1875) / 3)


def test_import_refuses_a_missing_file(tmp_path: Path) -> None:
    line = refused("loadtest", "import", tmp_path / "nowhere", "--out", tmp_path / "run")
    assert line.endswith("no such file")
