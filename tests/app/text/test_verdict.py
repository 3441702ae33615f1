"""A verification in words, in a table and as JSON."""

import json

from app.text.verdict import as_json, profile_lines, summary_table, verdict_lines
from policies.config import PolicyConfig
from tests.support.verifications import CONFIG, a_black_box_verification, a_verification

OPEN = {"max_seqs": "no time", "kv_tokens": "none waited"}


def test_every_load_has_its_table_and_the_last_line_is_the_verdict() -> None:
    one, two = verdict_lines(a_verification()), verdict_lines(a_black_box_verification())
    assert one[-1] == "VERDICT: the prediction holds"
    assert two[-1] == "VERDICT: the predictions hold"
    assert [line.partition(":")[0] for line in two if line.startswith("at ")] == [
        "at 50 % of capacity", "at 70 % of capacity",
    ]  # fmt: skip
    assert any("decides 3 of 3 steps identically" in line for line in one)
    assert not any("steps identically" in line for line in two)
    assert max(len(part) for line in [*one, *two] for part in line.splitlines()) <= 100


def test_a_failed_prediction_names_the_metrics_and_what_stayed_open() -> None:
    lines = verdict_lines(a_black_box_verification(off=1.5, **OPEN))
    start = next(row for row, line in enumerate(lines) if line.startswith("VERDICT"))
    assert max(map(len, lines[start:])) <= 100
    verdict = " ".join(lines[start:-3])
    assert verdict.startswith("VERDICT: the prediction FAILED on output_throughput_tokens_per_s at")
    assert "ttft_s.mean at 50 %" in verdict
    assert "ttft_s.mean at 70 %" in verdict
    assert lines[-3:] == [
        "what was not identified may be why:",
        "  max_seqs: no time",
        "  kv_tokens: none waited",
    ]


def test_the_summary_has_a_line_for_each_policy_and_load() -> None:
    found = [a_verification(), a_black_box_verification(off=1.5)]
    *_, first, second, third = summary_table(found)
    name = CONFIG.name
    assert [line.split()[:2] for line in (first, second, third)] == [
        [name, "70"], [name, "50"], [name, "70"],
    ]  # fmt: skip
    assert first.endswith("ok")
    assert second.endswith("FAILED")
    assert max(map(len, summary_table(found))) <= 100


def test_json_has_all_verifications_and_the_keys_of_a_single_one_at_the_top() -> None:
    alone = json.loads(as_json([a_verification()]))
    assert alone["verifications"] == [{key: alone[key] for key in alone["verifications"][0]}]
    assert alone["comparison"] == alone["levels"][0]["comparison"]
    assert (alone["policy"], alone["identical_steps"], alone["steps"]) == (CONFIG.name, 3, 3)
    black_box = json.loads(as_json([a_black_box_verification(off=1.5, **OPEN)]))
    assert not black_box["holds"]
    assert black_box["calibration"]["not identified"] == OPEN
    assert [level["utilisation"] for level in black_box["levels"]] == [0.5, 0.7]
    assert "comparison" not in black_box
    assert black_box["steps"] is None
    several = json.loads(as_json([a_verification(), a_verification(PolicyConfig(kv_tokens=4096))]))
    assert several.keys() == {"holds", "verifications"}


def test_a_profile_is_described_part_by_part() -> None:
    lines = profile_lines(a_verification().profile)
    assert any(line.startswith("paged: ") for line in lines)
    assert "  constant                    3000.000 us" in lines
    assert lines[-1].startswith("API: request in 0.00 ms")
