"""Figures: pure functions from frames to plotly figures, for the dashboard and the reports."""

from app.figures.agreement import predicted_against_measured
from app.figures.batches import batch_bars
from app.figures.canvas import DARK, LIGHT, Figure, alt_text
from app.figures.cdf import chunk_gap_cdf, gaps_s, latency_cdf
from app.figures.over_time import (
    differences_over_time,
    gains_over_time,
    latency_over_time,
    live_latency,
    schedule_lag,
    throughput_over_time,
)
from app.figures.palette import COLOURS, Look, looks
from app.figures.prediction_errors import error_per_band, errors_with_intervals
from app.figures.profile_fit import residual_cdf, step_time_curve
from app.figures.roofline import roofline
from app.figures.scenario_grid import frontier, heat_map
from app.figures.server_state import server_over_time, state_of_steps
from app.figures.stacked_bars import (
    PART_LOOKS,
    device_memory,
    mean_kv_parts,
    memory_bar,
    provenance_bar,
    request_parts,
)
from app.figures.timeline import TimelineData, gantt, timeline
from app.text.metric_labels import METRICS, Metric

__all__ = [
    "COLOURS",
    "DARK",
    "LIGHT",
    "METRICS",
    "PART_LOOKS",
    "Figure",
    "Look",
    "Metric",
    "TimelineData",
    "alt_text",
    "batch_bars",
    "chunk_gap_cdf",
    "device_memory",
    "differences_over_time",
    "error_per_band",
    "errors_with_intervals",
    "frontier",
    "gains_over_time",
    "gantt",
    "gaps_s",
    "heat_map",
    "latency_cdf",
    "latency_over_time",
    "live_latency",
    "looks",
    "mean_kv_parts",
    "memory_bar",
    "predicted_against_measured",
    "provenance_bar",
    "request_parts",
    "residual_cdf",
    "roofline",
    "schedule_lag",
    "server_over_time",
    "state_of_steps",
    "step_time_curve",
    "throughput_over_time",
    "timeline",
]
