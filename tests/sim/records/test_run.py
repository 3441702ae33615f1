"""A run and the folder that keeps it."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servetwin.sim.records.columns import columns_of, stamps_of
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import (
    HANDOVER_COLUMNS,
    PAUSE_COLUMNS,
    NotSaved,
    Run,
    RunError,
    load_run,
    save_files,
)
from tests.support.explained_runs import CONFIG, STORY, STORY_S, simulated
from tests.support.request_frames import four_requests


def test_a_run_folder_reads_back_as_it_was(tmp_path: Path) -> None:
    run = Run("simulation", four_requests(), pd.DataFrame(), {"seed": 3}, {"cores": 2})
    back = load_run(run.save(tmp_path / "run"))
    pd.testing.assert_frame_equal(back.requests, run.requests)
    assert (back.kind, back.scenario, back.meta) == (run.kind, run.scenario, run.meta)
    assert back.summary() == run.summary()


def test_a_table_of_columns_has_the_figures_of_the_frame_that_it_becomes() -> None:
    frame, slo = four_requests().assign(warm_up=[True, False, False, False]), SLO(0.3, 1.0)
    columns: Any = columns_of(frame)
    run = Run("simulation", columns, pd.DataFrame(), {})
    figures = run.summary(slo)
    assert run.table("requests") is columns, "no figure needs a frame"
    pd.testing.assert_frame_equal(run.requests, frame)
    assert figures == run.summary(slo) == Run("simulation", frame, run.steps, {}).summary(slo)


@pytest.mark.parametrize("missing", ["meta.json", "requests.parquet", "summary.json"])
def test_an_incomplete_run_folder_is_named(tmp_path: Path, missing: str) -> None:
    folder = Run("simulation", four_requests(), pd.DataFrame(), {}).save(tmp_path / "run")
    (folder / missing).unlink()
    with pytest.raises(RunError, match="not a readable run folder"):
        load_run(folder)


def test_tokens_out_of_order_are_named(tmp_path: Path) -> None:
    requests = four_requests()
    requests.loc[1, "last_token_s"] = -1.0
    folder = Run("simulation", requests, pd.DataFrame(), {}).save(tmp_path / "run")
    with pytest.raises(RunError, match="row 1: last_token_s is before first_token_s"):
        load_run(folder)


@pytest.mark.parametrize("name", ["meta.json", "summary.json", "scenario.yaml"])
@pytest.mark.parametrize("text", ["[" * 100_000, "[1, 2]", "hello", "null", "", "\0"])
def test_a_file_that_holds_something_else_is_named(tmp_path: Path, name: str, text: str) -> None:
    folder = Run("simulation", four_requests(), pd.DataFrame(), {}).save(tmp_path / "run")
    (folder / name).write_text(text)
    with pytest.raises(RunError, match=f"not a readable run folder .{name}: "):
        load_run(folder)


@pytest.mark.parametrize(
    "scenario",
    ["policies: [1]", "policies: {max_seqs: x}", "policies: {kv: [paged]}", "trace: 5", "notes: x"],
)
def test_a_scenario_of_other_kinds_is_named(tmp_path: Path, scenario: str) -> None:
    folder = Run("simulation", four_requests(), pd.DataFrame(), {}).save(tmp_path / "run")
    (folder / "scenario.yaml").write_text(scenario)
    with pytest.raises(RunError, match=r"scenario.yaml: .* is no (dict|int|str|list)"):
        load_run(folder)


def test_stamps_that_had_not_happened_at_the_end_are_undefined() -> None:
    found = pd.DataFrame(stamps_of([[3, 1.5], [0, 1.0, 2.0]], PAUSE_COLUMNS))
    assert found["row"].tolist() == [3, 0]
    assert found["preempted_s"].tolist() == [1.5, 1.0]
    assert found["resumed_s"].isna().tolist() == [True, False]


def test_files_that_cannot_be_written_are_all_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blocked = tmp_path / "run"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(NotSaved, match="its 3 bytes could not be written") as found:
        save_files(blocked, lambda: [("a.txt", b"abc"), ("summary.json", b"{}")])
    instead = found.value.instead
    assert instead is not None
    assert {path.name: path.read_bytes() for path in instead.iterdir()} == {
        "a.txt": b"abc",
        "summary.json": b"{}",
    }


def test_pauses_and_handovers_are_kept_where_there_are_any(tmp_path: Path) -> None:
    pauses = pd.DataFrame(stamps_of([[3, 1.0, 2.0], [4, 5.0]], PAUSE_COLUMNS))
    handovers = pd.DataFrame(stamps_of([(0, 2.0, 3.25, 4.0)], HANDOVER_COLUMNS))
    run = simulated(STORY, CONFIG, STORY_S)
    kept = replace(run, pauses=pauses, handovers=handovers)
    back = load_run(kept.save(tmp_path / "run"))
    pd.testing.assert_frame_equal(back.pauses, pauses)
    pd.testing.assert_frame_equal(back.handovers, handovers)
    assert np.isnan(back.pauses["resumed_s"][1])
    again = load_run(run.save(tmp_path / "run"))
    assert again.pauses.empty
    assert again.handovers.empty
    assert tuple(again.handovers.columns) == HANDOVER_COLUMNS
