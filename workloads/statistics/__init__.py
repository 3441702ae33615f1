"""Figures of a trace: arrivals, lengths, prefix reuse, sessions."""

from servetwin.workloads.statistics.statistics import prefix_statistics, statistics

__all__ = ["prefix_statistics", "statistics"]
