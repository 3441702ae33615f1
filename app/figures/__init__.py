"""Figures: pure functions from frames to plotly figures, for the dashboard and the reports."""
