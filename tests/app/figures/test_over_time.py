"""Figures along the run: points, medians, differences and throughput."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("plotly", reason="figures need plotly")

from app import figures
from app.dashboard.compare.policy_comparison import (
    request_gains,
)
from app.dashboard.load_test.load_test_process import LoadTestProcess
from app.dashboard.simulations import SimulatedScenario, simulate
from app.figures.over_time import token_rates_per_s
from app.scenario.scenario_file import parse_scenario
from tests.support.figure_frames import requests_frame


def requests(latencies_s: list[float | None]) -> pd.DataFrame:
    done = [f is not None for f in latencies_s]
    return pd.DataFrame(
        {
            "request_id": [f"r{place}" for place in range(len(latencies_s))],
            "status": ["finished" if one else "refused" for one in done],
            "scheduled_s": [10.0 - place for place in range(len(latencies_s))],
            "e2e_s": [float("nan") if f is None else f for f in latencies_s],
        }
    )


def test_gains_figure_has_a_trace_per_direction() -> None:
    found = request_gains(requests([1.0, 2.0, 3.0]), requests([0.5, 2.0, 4.0]))
    figure = figures.gains_over_time(found, "a", "b")
    assert [trace.name for trace in figure.data] == ["faster under b", "slower under b"]
    assert [list(trace.y) for trace in figure.data] == [[-500.0], [1000.0]]
    assert figure.data[0].marker.symbol != figure.data[1].marker.symbol
    assert figure.layout.xaxis.title.text == "scheduled arrival, s"
    assert figure.layout.yaxis.title.text == "E2E latency difference, ms"
    assert "1 are faster, 1 slower" in figures.alt_text(figure)


FEW = """
workload: {requests: 30, rate_per_s: 30, prompt_tokens: 20, prompt_cv: 0.2, output_tokens: 8,
           output_cv: 0.2}
"""


def outcome_of(text: str) -> SimulatedScenario:
    return simulate(parse_scenario(text, "test"))


def test_the_figure_has_both_sides_and_the_limit(tmp_path: Path) -> None:
    outcome = outcome_of(FEW)
    test = LoadTestProcess(tmp_path, subprocess.Popen([sys.executable, "-c", ""]))
    test.answers = [{"sent_s": 0.5, "ttft_s": 0.1, "tpot_s": None, "failure": None}]
    looks = figures.looks(("predicted", "measured"))
    figure = figures.live_latency(test.answered(), outcome.run.requests, "ttft_s", looks, 0.5)
    assert [trace.name for trace in figure.data] == ["measured so far", "predicted, running median"]
    assert list(figure.data[0].y) == [100.0]
    assert figure.layout.yaxis.title.text == "TTFT, ms"
    assert "median 100 ms" in figures.alt_text(figure)
    test.process.wait(10)


@given(st.integers(1, 80), st.integers(0, 1000))
def test_throughput_holds_every_token(count: int, seed: int) -> None:
    frame = requests_frame(count, seed)
    edges_s, rates_per_s = token_rates_per_s(frame)
    assert (rates_per_s * np.diff(edges_s)).sum() == pytest.approx(frame["output_tokens"].sum())
