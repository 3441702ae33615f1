"""Every figure of the package once, of small frames: to be drawn, read and exported."""

from collections.abc import Callable

import pandas as pd
import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.figures import (
    agreement,
    canvas,
    curves,
    frontier,
    load_curves,
    over_time,
    stacked_bars,
    timeline,
)
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.records.metrics import SLO
from tests.support.figure_frames import load_test, requests_frame, steps_frame

A, B = requests_frame(seed=1), requests_frame(seed=2)

TWO = {"A": A, "B": B}

LOOKS = canvas.looks(TWO)

MEASURED = {"A": load_test().requests}

FRAME = A[["request_id", "scheduled_s"]].assign(ttft_s_difference=0.1)

STEPS = steps_frame().assign(steps=1, decode_sequences=2, rows=3)

SPANS = pd.DataFrame({"line": [0], "part": ["decode"], "start_s": [0.0], "end_s": [1.0]})

MOMENTS = timeline.TimelineData(
    0.0, 9.0, A.head(3), SPANS, STEPS, over_time.state_of_steps(STEPS, 1000)
)  # fmt: skip

ERRORS = pd.DataFrame({"metric": ["TTFT"], "error": 1.0, "low": -1.0, "high": 2.0, "allowed": 10.0})

BANDS = pd.DataFrame(
    {"least": [0.0], "most": 3.0, "requests": 9, "error": 0.1, "low": 0.0, "high": 0.2,
     "noise": 0.05}
)  # fmt: skip

CURVE = pd.DataFrame(
    {"x": [1, 2, 3], "seconds": 0.01, "low_s": 0.009, "high_s": 0.02,
     "measured": [True, True, False]}
)  # fmt: skip

EVIDENCE = pd.DataFrame(
    {"gpu": ["X", "Y"], "evidence": ["layers", "sheet"], "metric": "ttft_s", "point": "mean",
     "predicted": [0.09, 1.2], "measured": [0.1, 1.0], "error": [-0.1, 0.2]}
)  # fmt: skip

GAINS = pd.DataFrame(
    {"request_id": ["r1", "r2"], "scheduled_s": [0.0, 1.0], "difference": [-0.1, 0.2]}
)


GRID = pd.DataFrame(
    {"series": ["A", "A", "B"], "label": ["A 1", "A 2", "B 1"],
     "interactivity_tokens_per_s": [60.0, 40.0, 50.0], "goodput_per_server_per_s": [1.0, 1.9, 1.2],
     "slo_attainment": [1.0, 0.99, 0.5], "on_front": [True, True, False]}
)  # fmt: skip

TASK = A.head(4).assign(
    session=["root", "root/1", "root/1", "root"],
    parents=pd.Series([[], ["r0"], ["r1"], ["r0", "r2"]], dtype=object),
)

DAY = pd.DataFrame(
    {"at_s": [0.0, 60.0, 120.0], "arrivals_per_s": [1.0, 5.0, 2.0], "replicas": [1.0, 1.5, 2.0],
     "replica_hours": [0.02, 0.04, 0.07], "factor": [0.4, 1.2, 0.0]}
)  # fmt: skip

LOADS = pd.DataFrame(
    {"series": ["A", "A", "B"], "rate": [2.0, 4.0, 2.0], "ttft_s_p99": [0.1, 0.9, 0.2]}
)

DRAWN: dict[str, Callable[[], canvas.Figure]] = {
    "cdf": lambda: curves.latency_cdf(TWO, "ttft_s", LOOKS, 0.5),
    "gaps": lambda: curves.chunk_gap_cdf(MEASURED, LOOKS),
    "latency": lambda: over_time.latency_over_time(TWO, "tpot_s", LOOKS, 0.05),
    "throughput": lambda: over_time.throughput_over_time(TWO, LOOKS),
    "lag": lambda: over_time.schedule_lag(MEASURED, LOOKS),
    "server": lambda: over_time.server_over_time(
        {"A": over_time.state_of_steps(steps_frame(), 1000)}, LOOKS
    ),
    "gantt": lambda: timeline.gantt(A),
    "lanes": lambda: timeline.swim_lanes(TASK),
    "agreement": lambda: agreement.predicted_against_measured(A, {"B": B}, "e2e_s", LOOKS),
    "differences": lambda: over_time.differences_over_time({"A": FRAME}, "ttft_s", LOOKS),
    "memory": lambda: stacked_bars.memory_bar({"A": {"weights": 3.0, "free": 1.0}}, "GiB"),
    "timeline": lambda: timeline.timeline(MOMENTS, "r1"),
    "explained": lambda: stacked_bars.request_parts("r1", {"queue": 1.0, "decode": 3.0}),
    "errors": lambda: agreement.errors_with_intervals(ERRORS),
    "evidence": lambda: agreement.predicted_by_evidence(EVIDENCE),
    "bands": lambda: agreement.error_per_band(BANDS, "ttft_s"),
    "step time": lambda: curves.step_time_curve({"A": CURVE}, "decodes, count", LOOKS),
    "rests": lambda: stacked_bars.provenance_bar(
        {"origins": {"measured here": 1.0}, "extrapolated": {"measured here": 0.2}}
    ),
    "gains": lambda: over_time.gains_over_time(GAINS, "A", "B"),
    "frontier": lambda: frontier.frontier(GRID, SLOTarget(SLO(tpot_s=0.02), 0.9)),
    "day": lambda: over_time.day_over_time({"fleet": DAY, "that stays": DAY}, 2.5),
    "loads": lambda: load_curves.latency_by_load(
        LOADS, "ttft_s", LOOKS, limit_s=0.5, now_per_s=3.0
    ),
}
