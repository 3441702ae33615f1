"""The source of a picture: what is common stands once, and no place of a machine."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from servetwin.app.reports.run_words import grid_line, made_by, server_name, source_line
from servetwin.sim.records.run import Run
from servetwin.workloads.program.package import own_version


def run(scenario: dict[str, Any], kind: Any = "simulation", count: int = 2000, **extra: Any) -> Run:
    return Run(kind, pd.DataFrame({"n": range(count)}), pd.DataFrame(), scenario, {}, extra)


SIMULATED = run(
    {"trace": "/home/me/code.csv", "profile": "/home/me/mine.json", "seed": 3},
    provenance={
        "origins": {"measured here": 0.999, "computed from data sheets": 0.001},
        "extrapolated": {"measured here": 0.069},
    },
)


def test_a_simulation_says_server_evidence_requests_seed_and_version() -> None:
    assert source_line([SIMULATED]) == (
        "Simulated: mine.json (step times measured here 93%, extrapolated from it 7%); "
        f"2,000 requests of code.csv; seed 3; Servetwin {own_version()}"
    )


def test_what_runs_have_in_common_stands_once() -> None:
    other = replace(SIMULATED, scenario={**SIMULATED.scenario, "seed": 4})
    assert source_line([SIMULATED, other]).count("code.csv") == 1
    assert "seed 3, seed 4" in source_line([SIMULATED, other])
    exact = replace(
        SIMULATED, extra={"provenance": {"origins": {"kernel tables": 1.0}, "extrapolated": {}}}
    )
    twice = "extrapolated from it 7% and kernel tables 100%); "
    assert twice in source_line([SIMULATED, exact, exact])
    measured = run(
        {"endpoint": {"model": "m", "base_url": "http://secret"}, "trace": "t"}, "loadtest"
    )
    said = source_line([SIMULATED, replace(measured, meta={"servetwin": "0.0.9"})])
    assert said.startswith("Simulated and Measured: mine.json")
    assert "m at an endpoint" in said
    assert said.endswith("Servetwin 0.0.9")
    assert "secret" not in said


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ({"model": "llama-3-8b", "gpu": "h100"}, "llama-3-8b on h100"),
        (
            {"model": "/x/config.json", "gpu": "h100", "techniques": ["fp8"],
             "without": ["paging"]},
            "config.json on h100 with fp8 without paging",
        ),
        ({"model": "llama", "gpu": None}, "llama"),
        ({"profile": ["a", "/x/b.json"]}, "a and b.json"),
        ({}, "an unnamed profile"),
    ],
)  # fmt: skip
def test_a_server_is_named_without_its_place(record: dict[str, Any], name: str) -> None:
    assert server_name(record) == name


def test_a_grid_says_what_its_scenarios_share() -> None:
    said = grid_line({"profile": "p"}, 1000, "generated", 0)
    assert said == f"Simulated: p; 1,000 generated requests each; seed 0; {made_by()}"
    assert "; all requests of t.csv each; " in grid_line({"profile": "p"}, None, "t.csv", 0)
