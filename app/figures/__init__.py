"""Figures: pure functions from frames to plotly figures, for the dashboard and the reports."""

from servetwin.app.figures.agreement import error_per_band as error_per_band
from servetwin.app.figures.agreement import errors_with_intervals as errors_with_intervals
from servetwin.app.figures.agreement import predicted_against_measured as predicted_against_measured
from servetwin.app.figures.agreement import predicted_by_evidence as predicted_by_evidence
from servetwin.app.figures.canvas import DARK as DARK
from servetwin.app.figures.canvas import LIGHT as LIGHT
from servetwin.app.figures.canvas import Figure as Figure
from servetwin.app.figures.canvas import Look as Look
from servetwin.app.figures.canvas import alt_text as alt_text
from servetwin.app.figures.canvas import looks as looks
from servetwin.app.figures.canvas import note_of as note_of
from servetwin.app.figures.canvas import title_of as title_of
from servetwin.app.figures.curves import chunk_gap_cdf as chunk_gap_cdf
from servetwin.app.figures.curves import gaps_s as gaps_s
from servetwin.app.figures.curves import latency_cdf as latency_cdf
from servetwin.app.figures.curves import residual_cdf as residual_cdf
from servetwin.app.figures.curves import step_time_curve as step_time_curve
from servetwin.app.figures.load_curves import count_curves as count_curves
from servetwin.app.figures.load_curves import is_cut as is_cut
from servetwin.app.figures.over_time import differences_over_time as differences_over_time
from servetwin.app.figures.over_time import gains_over_time as gains_over_time
from servetwin.app.figures.over_time import latency_over_time as latency_over_time
from servetwin.app.figures.over_time import live_latency as live_latency
from servetwin.app.figures.over_time import schedule_lag as schedule_lag
from servetwin.app.figures.over_time import server_over_time as server_over_time
from servetwin.app.figures.over_time import state_of_steps as state_of_steps
from servetwin.app.figures.over_time import throughput_over_time as throughput_over_time
from servetwin.app.figures.scenario_grid import frontier as frontier
from servetwin.app.figures.scenario_grid import heat_map as heat_map
from servetwin.app.figures.stacked_bars import PART_LOOKS as PART_LOOKS
from servetwin.app.figures.stacked_bars import device_memory as device_memory
from servetwin.app.figures.stacked_bars import mean_kv_parts as mean_kv_parts
from servetwin.app.figures.stacked_bars import memory_bar as memory_bar
from servetwin.app.figures.stacked_bars import provenance_bar as provenance_bar
from servetwin.app.figures.stacked_bars import request_parts as request_parts
from servetwin.app.figures.techniques import (
    quality_against_throughput as quality_against_throughput,
)
from servetwin.app.figures.techniques import roofline as roofline
from servetwin.app.figures.timeline import TimelineData as TimelineData
from servetwin.app.figures.timeline import batch_bars as batch_bars
from servetwin.app.figures.timeline import gantt as gantt
from servetwin.app.figures.timeline import timeline as timeline
from servetwin.app.words import METRICS as METRICS
