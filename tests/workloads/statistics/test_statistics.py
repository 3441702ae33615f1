"""The figures of the public traces, at the digits of the reference table; and hand-made cases."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import index_of_dispersion, spearman_rho, statistics
from servetwin.workloads.trace import Trace
from tests.support.trace_rows import shared_trace

COLUMNS = [
    ("rows", ",d"), ("span_s", ",.1f"), ("rate_per_s", ".3f"), ("cv_iat", ".3f"),
    ("local_cv", ".3f"), ("ties", ".3f"), ("idc_10s", ".2f"), ("idc_60s", ".2f"),
    ("prompt_tokens.mean", ",.1f"), ("prompt_tokens.p50", ",.0f"), ("prompt_tokens.p90", ",.0f"),
    ("prompt_tokens.p99", ",.0f"), ("prompt_tokens.max", ",.0f"),
    ("output_tokens.mean", ",.1f"), ("output_tokens.p50", ",.0f"), ("output_tokens.p90", ",.0f"),
    ("output_tokens.p99", ",.0f"), ("output_tokens.max", ",.0f"), ("spearman_rho", ".3f"),
]  # fmt: skip
PREFIX_COLUMNS = [
    ("prefix.blocks", ",d"), ("prefix.unique_blocks", ",d"), ("prefix.hit_per_block", ".4f"),
    ("prefix.hit_per_token", ".4f"), ("prefix.full_block_hit_per_token", ".4f"),
]  # fmt: skip

AZURE_CONV = "azure/AzureLLMInferenceTrace_conv.csv.gz"
AZURE_CODE = "azure/AzureLLMInferenceTrace_code.csv.gz"
CONVERSATION = "mooncake/conversation_trace.jsonl.gz"
ARXIV = "mooncake/arxiv_trace_window_93.jsonl"

TABLE = f"""
{ARXIV} | 93 | 12.2 | 7.532 | 4.690 | 4.690 | 0.957 | - | - | 7,694.8 | 6,182 | 16,603 | 30,325 | 32,385 | 200.1 | 35 | 552 | 787 | 1,048 | 0.011
{CONVERSATION} | 12,031 | 3,537.0 | 3.401 | 3.034 | 3.092 | 0.902 | 2.10 | 2.89 | 12,035.1 | 6,909 | 27,367 | 85,400 | 126,195 | 342.6 | 350 | 597 | 1,119 | 2,000 | 0.072
{AZURE_CODE} | 8,819 | 3,435.9 | 2.566 | 13.151 | 9.899 | 0.000 | 71.64 | 163.96 | 2,047.8 | 1,469 | 5,188 | 7,436 | 7,437 | 27.9 | 13 | 55 | 251 | 1,899 | -0.021
{AZURE_CONV} | 19,366 | 3,501.7 | 5.530 | 1.094 | 1.040 | 0.000 | 3.86 | 16.13 | 1,154.7 | 1,020 | 2,734 | 4,142 | 14,050 | 211.1 | 129 | 424 | 601 | 1,000 | 0.073
"""  # noqa: E501
PREFIX_TABLE = f"""
{ARXIV} | 1,449 | 937 | 0.3533 | 0.3663 | 0.3663
{CONVERSATION} | 288,500 | 182,790 | 0.3664 | 0.3736 | 0.3734
"""


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


@cache
def shared_figures(name: str) -> dict[str, Any]:
    return statistics(shared_trace(name))


def printed(figures: dict[str, Any], columns: list[tuple[str, str]]) -> list[str]:
    cells = []
    for name, style in columns:
        value: Any = figures
        for key in name.split("."):
            value = value[key]
        cells.append("-" if value is None else format(value, style))
    return cells


@pytest.mark.slow
@pytest.mark.parametrize(("name", "columns", "expected"), [
    *((row[0], COLUMNS, row[1:]) for row in rows(TABLE)),
    *((row[0], PREFIX_COLUMNS, row[1:]) for row in rows(PREFIX_TABLE)),
])  # fmt: skip
def test_reference_table(name: str, columns: list[tuple[str, str]], expected: list[str]) -> None:
    assert printed(shared_figures(name), columns) == expected


def test_a_trace_of_one_request_has_no_ratios() -> None:
    figures = statistics(Trace((Request("a", 5.0, 10, 3),), "x"))
    assert figures["rows"] == 1
    assert figures["prompt_tokens"] == {"mean": 10, "p50": 10, "p90": 10, "p99": 10, "max": 10}
    names = ("cv_iat", "local_cv", "ties", "idc_1s", "idc_300s", "spearman_rho", "prefix")
    assert [figures[name] for name in names] == [None] * len(names)


def test_dispersion_of_the_burstiest_and_the_steadiest_trace() -> None:
    """Section 1.1 of the reference: 1.4, 3.9, 16, 56 for chats, 13, 72, 164, 138 for code."""
    windows = ("idc_1s", "idc_10s", "idc_60s", "idc_300s")
    for name, expected in ((AZURE_CONV, "1.4 3.9 16 56"), (AZURE_CODE, "13 72 164 138")):
        figures = shared_figures(name)
        printed = [f"{figures[w]:.{1 if figures[w] < 10 else 0}f}" for w in windows]
        assert " ".join(printed) == expected


def test_sessions_by_hand() -> None:
    requests = (
        Request("a", 0.0, 10, 5, session_id="s"),
        Request("b", 3.0, 22, 5, session_id="s", parent_ids=("a",)),
        Request("c", 4.0, 9, 5, session_id="t"),
        Request("d", 9.0, 12, 1, session_id="s", parent_ids=("b",)),  # compacted: nothing fresh
        Request("e", 9.5, 99, 1, parent_ids=("not here",)),
    )
    sessions = statistics(Trace(requests, "x"))["sessions"]
    assert sessions["count"] == 2
    assert (sessions["turns"]["mean"], sessions["turns"]["max"]) == (2, 3)
    assert (sessions["gap_s"]["mean"], sessions["gap_s"]["max"]) == (4.5, 6)
    assert (sessions["fresh_tokens"]["mean"], sessions["fresh_tokens"]["max"]) == (3.5, 7)
    assert statistics(Trace(requests[-1:], "x"))["sessions"] is None


def test_an_empty_trace_has_no_figures() -> None:
    figures = statistics(Trace((), "x"))
    assert (figures["rows"], figures["rate_per_s"], figures["local_cv"]) == (0, 0.0, None)
    assert figures["output_tokens"]["max"] is None


def test_index_of_dispersion_counts_whole_windows_and_empty_ones() -> None:
    arrivals_s = np.array([100.0, 101, 102, 109, 131, 139, 145])
    # windows of 10 s from 100: 4, 0, 0, 2; the arrival in the cut fifth window is left out
    assert index_of_dispersion(arrivals_s, 10) == np.var([4, 0, 0, 2]) / 1.5
    assert index_of_dispersion(arrivals_s, 40) is None


@pytest.mark.parametrize(
    ("left", "right", "rho"),
    [([1, 2, 3], [10, 100, 1000], 1.0), ([1, 2, 3], [3, 2, 1], -1.0), ([1, 1, 1], [3, 2, 1], None)],
)
def test_spearman(left: list[float], right: list[float], rho: float | None) -> None:
    assert spearman_rho(np.array(left), np.array(right)) == (rho and pytest.approx(rho))


def test_spearman_with_ties_agrees_with_scipy() -> None:
    from scipy.stats import spearmanr

    left, right = np.random.default_rng(0).integers(0, 5, (2, 200)).astype(float)
    assert spearman_rho(left, right) == pytest.approx(spearmanr(left, right).statistic, rel=1e-12)


IDEAL = ("blocks", "unique_blocks", "hit_per_block", "hit_per_token", "full_block_hit_per_token")


def test_prefix_hits_by_hand() -> None:
    ids = [(1, 2, 3), (1, 2, 3), (1, 4, 5), ()]
    prompts = [10, 10, 12, 8]
    trace = Trace(tuple(Request(str(i), 0.0, p, 1, ids[i], 4) for i, p in enumerate(prompts)), "x")
    prefix = statistics(trace)["prefix"]
    assert prefix["reused_blocks"] == 3 / 5
    assert prefix["coarser"]["2x"] == {"hit_per_block": 2 / 6, "hit_per_token": 10 / 40}
    assert prefix["lru"]["50%"] == {"hit_per_block": 3 / 9, "hit_per_token": 12 / 40}
    assert {name: prefix[name] for name in IDEAL} == {
        "blocks": 9,
        "unique_blocks": 5,
        "hit_per_block": 4 / 9,
        "hit_per_token": (10 + 4) / 40,
        "full_block_hit_per_token": (8 + 4) / 40,
    }
