"""The grid of the Policies page: rows as scenarios, and what its table concludes."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.compare.policy_comparison import scenario_under
from servetwin.app.dashboard.policies.policy_grid import (
    DEFAULT_TABLE,
    NAME,
    POLICIES,
    best_per_rate,
    highest_rates,
    named_scenarios,
    policy_points,
)
from servetwin.app.scenario.files.scenario_file import ScenarioError, ScenarioFile
from servetwin.workloads.errors import ServetwinError

BASE = ScenarioFile(policies={"max_seqs": 8})


def table(*rows: tuple[str | None, str | None]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[NAME, POLICIES])


@pytest.mark.parametrize(
    ("text", "policies", "cluster"),
    [
        ("", {}, {}),
        ("chunked+paged+prefix", {"batching": "chunked", "kv": "paged", "prefix_cache": True}, {}),
        ("chunked  max_seqs=64", {"batching": "chunked", "max_seqs": 64}, {}),
        ("replicas=2 router=random", {}, {"replicas": 2, "router": "random"}),
    ],
)
def test_policies_lie_over_the_scenario(
    text: str, policies: dict[str, Any], cluster: dict[str, Any]
) -> None:
    assert scenario_under(BASE, text) == BASE.over(policies, cluster)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chunkd", "did you mean 'chunked'"),
        ("max_seqs=many", "'many' is not a whole number"),
        ("batching=mine.py:Mine", "not offered here"),
        ("kv=/etc/passwd:X", "not offered here"),
        ("router=mine.py:Mine", "not offered here"),
        ("max_seqs=0", "max_seqs"),
    ],
)
def test_impossible_policies_say_why_without_naming_an_option(text: str, message: str) -> None:
    with pytest.raises(ServetwinError, match=re.escape(message)) as raised:
        scenario_under(BASE, text).settled()
    assert "--" not in str(raised.value)


def test_rows_are_named_and_empty_ones_left_out() -> None:
    rows = table(("a", "static"), (None, None), (None, "chunked"), ("b", ""))
    found = named_scenarios(BASE, rows)
    assert list(found) == ["a", "chunked", "b"]
    assert found["b"] == BASE
    with pytest.raises(ScenarioError, match=r"row 2 \(a\): another row has this name"):
        named_scenarios(BASE, table(("a", "static"), ("a", "chunked")))
    with pytest.raises(ScenarioError, match=r"row 2 \(b\): .*'statik'"):
        named_scenarios(BASE, table(("a", "static"), ("b", "statik")))


def test_points_are_rows_times_rates_with_their_scenarios() -> None:
    points, files = policy_points(BASE, DEFAULT_TABLE, "8, 4")
    assert points[:3] == [
        {NAME: name, "rate": rate, "label": f"{name} at {rate:g} requests/s"}
        for name, rate in (("static", 4.0), ("static", 8.0), ("continuous", 4.0))
    ]
    assert [file.workload.rate_per_s for file in files[:3]] == [4.0, 8.0, 4.0]
    with pytest.raises(ScenarioError, match="no point"):
        policy_points(BASE, table(), "8")
    for rates, message in (
        ("2, fast", "Requests per second: 'fast'"), ("0", "Requests per second: '0'"),
        (",".join(map(str, range(1, 70))), "276 points; at most"),
    ):  # fmt: skip
        with pytest.raises(ScenarioError, match=message):
            policy_points(BASE, DEFAULT_TABLE, rates)


def test_without_a_rate_it_is_that_of_the_scenario() -> None:
    points, files = policy_points(BASE, DEFAULT_TABLE, " ")
    assert [point["rate"] for point in points] == [10.0] * 4
    assert {file.workload.rate_per_s for file in files} == {10.0}
    own = BASE.workload.model_copy(update={"source": "sample", "rate_per_s": None})
    with pytest.raises(ScenarioError, match="Requests per second: name at least one"):
        policy_points(BASE.model_copy(update={"workload": own}), DEFAULT_TABLE, "")


def grid(*attained: tuple[float, ...]) -> pd.DataFrame:
    """Policies a, b, c ... at rates 1, 2, ..."""
    return pd.DataFrame(
        [
            {NAME: "abc"[row], "rate": float(rate), "slo_attainment": share}
            for row, shares in enumerate(attained)
            for rate, share in enumerate(shares, 1)
        ]
    )


def test_words_name_the_best_per_rate() -> None:
    found = grid((1.0, 0.5, np.nan), (1.0, 0.9, np.nan), (0.999, 0.2, 0.1))
    assert best_per_rate(found, 0.99) == [
        "At 1 requests/s: a and b with 100.0 %.",
        "At 2 requests/s: b with 90.0 %, less than 99 %.",
        "At 3 requests/s: c with 10.0 %, less than 99 %.",
    ]


def test_how_far_each_goes_ends_at_the_first_miss() -> None:
    found = grid((1.0, 0.5, 1.0), (0.9, 1.0, 1.0), (1.0, 1.0, np.nan))
    rates = highest_rates(found, 0.99).iloc[:, 1]
    assert rates.fillna(0).tolist() == [1.0, 0.0, 2.0]
