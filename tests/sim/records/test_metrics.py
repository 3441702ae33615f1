"""The metrics, on stamps whose figures can be worked out by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sim.records.metrics import SLO, derive, describe, figure, summarize
from sim.records.run import Run, RunError, load_run


def frame() -> pd.DataFrame:
    stamps = pd.DataFrame(
        {
            "request_id": ["a", "b", "c", "d"],
            "status": ["finished", "finished", "finished", "refused"],
            "scheduled_s": [1.0, 2.0, 3.0, 4.0],
            "sent_s": [1.0, 2.0, 3.0, 4.0],
            "first_token_s": [1.5, 2.2, 3.1, np.nan],
            "last_token_s": [3.5, 2.2, 11.0, np.nan],
            "prompt_tokens": [10, 20, 30, 40],
            "output_tokens": [5, 1, 80, 0],
            "cached_tokens": [0, 16, 0, 0],
            "preemptions": [0, 0, 2, 0],
            "queue_s": [0.1, 0.0, 0.0, np.nan],
            "replica": 0,
            "error": ["", "", "", "queue_full"],
        }
    )
    return derive(stamps)


def test_latencies_follow_their_definitions() -> None:
    requests = frame()
    assert requests["ttft_s"].tolist()[:3] == pytest.approx([0.5, 0.2, 0.1])
    assert requests["e2e_s"].tolist()[:3] == pytest.approx([2.5, 0.2, 8.0])
    assert requests["tpot_s"][0] == 0.5
    assert np.isnan(requests["tpot_s"][1]), "TPOT of one token is undefined, not 0"


def test_tokens_of_the_first_chunk_do_not_divide_the_time_after_it() -> None:
    stamps = frame().assign(first_chunk_tokens=[3, 1, 1, 0])
    assert derive(stamps)["tpot_s"][0] == 1.0


def test_summary_counts_throughput_hits_and_preemptions() -> None:
    summary = summarize(frame())
    assert summary["requests"] == {
        "total": 4,
        "finished": 3,
        "refused": 1,
        "cancelled": 0,
        "failed": 0,
    }
    assert summary["makespan_s"] == 10.0
    assert summary["output_throughput_tokens_per_s"] == 8.6
    assert summary["prefix_hit_rate_tokens"] == pytest.approx(16 / 60)
    assert summary["preemptions"] == 2
    assert summary["tpot_s"]["count"] == 2
    assert figure(summary, "ttft_s.p50") == pytest.approx(0.2)


def test_attainment_counts_every_scheduled_request_and_goodput_only_the_good() -> None:
    summary = summarize(frame(), SLO(ttft_s=0.3, tpot_s=1.0))
    assert summary["slo_attainment"] == 0.5
    assert summary["goodput_per_s"] == 0.2


def test_percentiles_are_linear_and_empty_ones_are_none() -> None:
    assert describe(pd.Series([1.0, 2.0, np.nan, 4.0]))["p90"] == pytest.approx(3.6)
    assert describe(pd.Series([np.nan]))["mean"] is None


def test_a_run_folder_reads_back_as_it_was(tmp_path: Path) -> None:
    run = Run("simulation", frame(), pd.DataFrame({"x": [1]}), {"seed": 3}, {"cores": 2})
    back = load_run(run.save(tmp_path / "run"))
    pd.testing.assert_frame_equal(back.requests, run.requests)
    assert (back.kind, back.scenario, back.meta) == (run.kind, run.scenario, run.meta)
    assert back.summary() == run.summary()


@pytest.mark.parametrize("missing", ["meta.json", "requests.parquet", "summary.json"])
def test_an_incomplete_run_folder_is_named(tmp_path: Path, missing: str) -> None:
    folder = Run("simulation", frame(), pd.DataFrame(), {}).save(tmp_path / "run")
    (folder / missing).unlink()
    with pytest.raises(RunError, match="not a readable run folder"):
        load_run(folder)
