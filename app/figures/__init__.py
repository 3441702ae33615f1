"""Figures: pure functions from frames to plotly figures, for the dashboard and the reports."""

from app.figures.agreement import differences_over_time, predicted_against_measured
from app.figures.canvas import DARK, LIGHT, Figure, alt_text
from app.figures.cdf import chunk_gap_cdf, gaps_s, latency_cdf
from app.figures.gantt import gantt
from app.figures.memory import mean_kv_parts, memory_bar
from app.figures.over_time import latency_over_time, schedule_lag, throughput_over_time
from app.figures.palette import COLOURS, Look, looks
from app.figures.server_state import server_over_time, state_of_steps
from app.metric_words import METRICS, Metric

__all__ = [
    "COLOURS",
    "DARK",
    "LIGHT",
    "METRICS",
    "Figure",
    "Look",
    "Metric",
    "alt_text",
    "chunk_gap_cdf",
    "differences_over_time",
    "gantt",
    "gaps_s",
    "latency_cdf",
    "latency_over_time",
    "looks",
    "mean_kv_parts",
    "memory_bar",
    "predicted_against_measured",
    "schedule_lag",
    "server_over_time",
    "state_of_steps",
    "throughput_over_time",
]
