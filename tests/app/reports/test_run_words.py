"""What reports say of what simulated time rests on."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from servetwin.app.reports.run_words import outside_warning, provenance_line, shares_in_words
from servetwin.sim.step_times.provenance import MeasuredRange
from tests.support.command import SERVER, servetwin, with_server
from tests.support.paths import OF_KERNELS, SAMPLE, SHEET_PROFILE

FAR: dict[str, Any] = {
    "origins": {"measured here": 1.0},
    "extrapolated": {"measured here": 0.069},
    "shares": {"interpolated": 0.931, "extrapolated": 0.069},
    "outside": [
        {
            "profile": "base-cpu",
            "feature": "decode_context_tokens",
            "value": 81_000.0,
            "measured": 12_400.0,
        }
    ],
}


def test_the_report_says_what_it_rests_on() -> None:
    line = "rests on   measured here 93.1 %, extrapolated from it 6.9 % of simulated time"
    assert provenance_line(FAR) == line
    nothing: dict[str, Any] = {"origins": {}, "extrapolated": {}, "shares": {}, "outside": []}
    assert provenance_line(nothing) == "no step was run"


def test_every_origin_has_its_share_and_what_is_extrapolated_from_it() -> None:
    mixed = {
        "origins": {"computed from data sheets": 0.5, "measured here": 0.4, "kernel tables": 0.1},
        "extrapolated": {"kernel tables": 0.1},
    }
    assert shares_in_words(mixed) == (
        "measured here 40.0 %, extrapolated from it 10.0 %, computed from data sheets 50.0 %"
    )


def test_a_run_of_an_older_version_does_not_state_its_origin() -> None:
    older = {"shares": FAR["shares"], "outside": []}
    assert shares_in_words(older) == "not stated 93.1 %, extrapolated from it 6.9 %"
    assert provenance_line({"shares": {}, "outside": []}) == "no step was run"


def test_the_warning_names_the_range() -> None:
    start = (
        "warning: 6.9 % of the simulated time lies outside the range of profile base-cpu "
        "(decode context up to 81,000 tokens; known up to 12,400)"
    )
    assert outside_warning(FAR, widened=True) == f"{start}: intervals are widened there"
    assert outside_warning(FAR, widened=False) == f"{start}: the error there is unknown"


@pytest.mark.parametrize(("share", "warns"), [(0.0, False), (0.001, False), (0.0011, True)])
def test_a_thousandth_of_the_time_is_worth_no_warning(share: float, warns: bool) -> None:
    found = {**FAR, "shares": {"extrapolated": share}}
    assert (outside_warning(found, widened=True) is not None) == warns


@pytest.mark.parametrize("feature", [field.name for field in fields(MeasuredRange)])
def test_every_feature_can_be_told(feature: str) -> None:
    several = [FAR["outside"][0], {**FAR["outside"][0], "feature": feature, "profile": "other"}]
    warning = outside_warning({**FAR, "outside": several}, widened=True) or ""
    assert "the range of profiles base-cpu, other (" in warning
    assert "; also " in warning


def test_replay_reports_and_warns(tmp_path: Path) -> None:
    outside = ("--prompt-scale", 3, "--output-scale", 4, "--replications", 3)
    done = servetwin("replay", SAMPLE, *SERVER, *outside, "--out", tmp_path)
    (line,) = (line for line in done.out.splitlines() if line.startswith("rests on"))
    assert "extrapolated" in line
    (warning,) = (line for line in done.err.splitlines() if line.startswith("warning: "))
    assert "profile base-cpu (decode context up to " in warning
    assert warning.endswith("tokens; known up to 2,040): intervals are widened there")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert sum(summary["provenance"]["shares"].values()) == pytest.approx(1)
    again = servetwin("replay", SAMPLE, *SERVER, *outside, "--json")
    assert json.loads(again.out)["provenance"] == summary["provenance"]
    assert warning in again.err


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "rests on   measured here 100.0 % of simulated time"),
        (
            ("--profile", SHEET_PROFILE),
            "rests on   computed from data sheets 100.0 % of simulated time",
        ),
        (
            ("--profile", OF_KERNELS),
            "rests on   kernel tables 100.0 % of simulated time",
        ),
    ],
)
def test_replay_warns_of_nothing_where_nothing_is_outside(
    options: tuple[str, ...], line: str
) -> None:
    done = servetwin("replay", SAMPLE, "--replications", 0, *with_server(*options))
    assert line in done.out.splitlines()
    assert "warning" not in done.err


def test_compare_tells_of_both_sides() -> None:
    compared = ("--prompt-scale", 3, "--output-scale", 4, "--replications", 2)
    sides = ("replay", "compare", "static+contiguous", "continuous+paged", SAMPLE, *SERVER)
    done = servetwin(*sides, *compared)
    for side in "AB":
        assert f"\n{side} rests on   " in done.out
        assert f"{side}: warning: " in done.err
    found = json.loads(servetwin(*sides, *compared, "--json").out)
    assert found["a"]["provenance"]["shares"]["extrapolated"] > 0.001
