"""A verification in words, in a table and as JSON."""

import json
from dataclasses import replace

from servetwin.app.reports.verdict import as_json, profile_lines, summary_table, verdict_lines
from servetwin.policies.config import PolicyConfig
from tests.support.verifications import (
    CONFIG,
    a_black_box_verification,
    a_level,
    a_profile,
    a_verification,
    verification_of,
)

OPEN = {"max_seqs": "no time", "kv_tokens": "none waited"}


def verdict_of(lines: list[str]) -> list[str]:
    """The lines from the verdict on."""
    start = next(row for row, line in enumerate(lines) if line.startswith("VERDICT"))
    assert max(map(len, lines)) <= 100
    return lines[start:]


def test_every_load_has_its_table_and_the_verdict_its_meaning() -> None:
    one, two = verdict_lines(a_verification()), verdict_lines(a_black_box_verification())
    assert verdict_of([line for part in one for line in part.splitlines()])[:2] == [
        "VERDICT: holds; the engine is within the limits of the prediction",
        "at 70 %: The prediction holds: 2 load tests place every judged error within its limit.",
    ]
    assert [line.partition(":")[0] for line in two if line.startswith("at ")] == [
        "at 50 % of capacity", "at 70 % of capacity", "at 50 %", "at 70 %",
    ]  # fmt: skip
    assert any("capacity 5.00/s (4.80 to 5.20)" in line for line in one)
    assert any("decides 3 of 3 steps identically" in line for line in one)
    assert not any("steps identically" in line for line in two)
    assert "power: step times 6 % slower or faster would have been refuted" in one


def test_the_machine_line_says_what_a_black_box_cannot_tell_apart() -> None:
    lines = verdict_lines(a_verification())
    at = next(row for row, line in enumerate(lines) if line.startswith("machine: "))
    assert " ".join(lines[at : at + 2]).startswith(
        "machine: steps are in wall time, as the stamps of tokens tell 50% of it: its speed and an "
        "error that all steps share look alike"
    )


def test_a_refuted_prediction_names_the_metrics_and_what_stayed_open() -> None:
    lines = verdict_lines(a_black_box_verification(off=1.5, **OPEN))
    verdict = verdict_of([line for part in lines for line in part.splitlines()])
    assert verdict[0] == "VERDICT: REFUTED; the engine does not behave as the profile says"
    said = " ".join(line.strip() for line in verdict)
    for load in (50, 70):
        assert (
            f"at {load} %: The prediction is REFUTED: 2 load tests place the error of output "
            "throughput, TPOT mean" in said
        )
    assert verdict[-3:] == [
        "possible causes, which calibration could not identify:",
        "  max_seqs: no time",
        "  kv_tokens: none waited",
    ]


def test_what_cannot_be_told_says_what_would_help() -> None:
    level = a_level(0.7)
    doubt = "other programs took 60 % of the engine's time"
    claims = replace(level.claims, comparison=replace(level.claims.comparison, doubts=(doubt,)))
    lines = verdict_lines(verification_of(a_profile(CONFIG), [replace(level, claims=claims)]))
    assert lines[-2:] == [
        "VERDICT: cannot tell; these load tests neither confirm nor refute the prediction",
        f"at 70 %: Cannot tell: {doubt}.",
    ]


def test_the_summary_has_a_line_for_each_policy_and_load() -> None:
    found = [a_verification(), a_black_box_verification(off=1.5)]
    *_, first, second, third = summary_table(found)
    name = CONFIG.name
    assert [line.split()[:2] for line in (first, second, third)] == [
        [name, "70"], [name, "50"], [name, "70"],
    ]  # fmt: skip
    assert first.endswith("holds")
    assert second.endswith("REFUTED")
    assert max(map(len, summary_table(found))) <= 100


def test_json_has_all_verifications_and_the_keys_of_a_single_one_at_the_top() -> None:
    alone = json.loads(as_json([a_verification()]))
    assert alone["verifications"] == [{key: alone[key] for key in alone["verifications"][0]}]
    assert alone["comparison"] == alone["levels"][0]["comparison"]
    assert (alone["policy"], alone["identical_steps"], alone["steps"]) == (CONFIG.name, 3, 3)
    black_box = json.loads(as_json([a_black_box_verification(off=1.5, **OPEN)]))
    assert (black_box["outcome"], black_box["holds"]) == ("refuted", False)
    assert black_box["calibration"]["not identified"] == OPEN
    assert [level["utilisation"] for level in black_box["levels"]] == [0.5, 0.7]
    assert "comparison" not in black_box
    assert black_box["steps"] is None
    several = json.loads(as_json([a_verification(), a_verification(PolicyConfig(kv_tokens=4096))]))
    assert several.keys() == {"outcome", "holds", "verifications"}
    assert several["outcome"] == "holds"


def test_a_profile_is_described_part_by_part() -> None:
    lines = profile_lines(a_verification().forecast.profile)
    assert any(line.startswith("paged: ") for line in lines)
    assert "  constant                    3000.000 us" in lines
    assert lines[-1].startswith("API: request in 0.00 ms")
