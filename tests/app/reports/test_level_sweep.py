"""A sweep in words."""

from dataclasses import replace

from servetwin.app.reports.level_sweep import (
    knee_sentences,
    level_rows,
    sweep_lines,
    sweep_verdict,
)
from servetwin.loadtest.sweep.attainment import Attainment
from servetwin.loadtest.sweep.knee import Knee
from servetwin.loadtest.sweep.sweep import MISSED_ALONE, NONE_FINISHED
from tests.support.swept_levels import swept, with_late_level


def test_a_row_per_level_with_the_predicted_one_below_it() -> None:
    sweep = swept("rates", levels=2)
    lines = sweep_lines(sweep)
    assert max(map(len, lines)) <= 100
    rows = [f"{level.plan.load} " for level in sweep.levels]
    at = [next(i for i, line in enumerate(lines) if line.startswith(row)) for row in rows]
    assert all("  predicted" in lines[row + 1] for row in at)
    assert lines[at[0]].split()[2:] == [
        "1", "100", "100", "100", "100", "50", "99.91", "%", "(97.9", "to", "100.0)",
    ]  # fmt: skip
    assert lines[-1] == "ended: all levels are measured"
    assert lines[0] == "PASS: 4 finished levels"


def test_the_verdict_is_the_first_line() -> None:
    """Held up to a rate, at all, at none, or unknown; what was cut off is told apart."""
    found = swept(wanted=0.975)
    kept = "97.5 % of the requests keep TTFT <= 500 ms"
    assert " ".join(sweep_lines(found)[:2]).startswith(f"PASS: up to 5 requests/s, {kept}")
    assert str(sweep_verdict(swept(wanted=0.9))) == (
        "PASS: up to 10 requests/s, 90 % of the requests keep TTFT <= 500 ms"
    )
    missed = [
        replace(one, attainment=Attainment(0.5, 0.4, 0.6, 400, 400.0)) for one in found.levels
    ]
    none = sweep_verdict(replace(found, levels=tuple(missed)))
    assert (none.word, none.exit_code) == ("FAIL", 1)
    assert "not at the lowest rate that was tried: 97.5 % of" in none.reason
    refused = replace(found, ended=f"{NONE_FINISHED} at 1 user: HTTP 429", early=True)
    assert str(sweep_verdict(refused)) == "FAIL: no request finished at 1 user: HTTP 429"
    alone = sweep_verdict(replace(found, ended=MISSED_ALONE))
    assert (alone.word, alone.exit_code) == ("FAIL", 1)
    unknown = sweep_verdict(swept(load_tests=2))
    assert (unknown.word, unknown.exit_code) == ("CANNOT TELL", 3)
    for cut in (replace(found, ended="interrupted", early=True), replace(found, ended=None)):
        verdict = sweep_verdict(cut)
        assert (verdict.word, verdict.exit_code) == ("CUT OFF", 1)
        assert verdict.reason.endswith(f"{len(found.levels)} finished levels")


def test_what_was_sent_follows_the_levels() -> None:
    machine = {"date": "2026-11-27 10:00:00", "servetwin": "1.2", "python": "3.12.1", "cores": 2}
    about = {"lengths": "prompts 128 tokens on average (p99 300)", "machine": machine}
    sweep = swept(load_tests=4)
    lines = sweep_lines(replace(sweep, about={**sweep.about, **about}))
    at = lines.index("load test of formula at http://nowhere/v1 ()")
    assert at > lines.index("")
    assert lines[at + 2] == "prompts 128 tokens on average (p99 300)"
    assert lines[at + 3] == "2026-11-27 10:00:00; servetwin 1.2, Python 3.12.1, cores 2"
    bare = replace(sweep, settings=replace(sweep.settings, slo=None))
    assert "by what requests take that come alone" in " ".join(sweep_lines(bare))


def test_the_csv_has_a_row_per_level() -> None:
    rows = level_rows(swept(load_tests=4))
    assert rows["load"].tolist()[:2] == ["1 user", "all at once"]
    assert {"requests", "failed", "ttft_s.p99", "completed_per_s", "counts"} <= {*rows.columns}


def test_the_knee_stands_beside_the_predicted_one() -> None:
    found = list(knee_sentences(swept(wanted=0.975)))
    assert found[0].startswith("knee: 5 requests/s")
    assert "90% interval" in found[0]
    assert ", 95 %: 5 to 5.4" in found[1]
    assert found[1].endswith("of the measured one, inside its interval")
    assert len(found) == 2
    far = replace(swept(wanted=0.975), predicted=Knee(50.0, None, None))
    assert list(knee_sentences(far))[1].endswith("outside its interval")


def test_levels_too_small_to_prove_the_share_are_named() -> None:
    assert "--sweep-requests 3688" in list(knee_sentences(swept(wanted=0.999)))[-1]


def test_a_level_that_does_not_count_and_a_sweep_that_goes_on_say_so() -> None:
    lines = sweep_lines(replace(with_late_level(swept(load_tests=4)), ended=None))
    assert any(line.endswith(" does not count: CPU 99%") for line in lines)
    assert lines[-1] == "ended: not yet"


def test_without_an_slo_there_are_no_shares() -> None:
    sweep = swept("users", levels=2)
    plain = replace(sweep, settings=replace(sweep.settings, slo=None))
    assert not any("SLO" in line or "knee" in line for line in sweep_lines(plain))


def test_real_prompts_that_a_cache_may_know_are_named() -> None:
    sweep = swept(load_tests=3)
    assert "each has prompts of its own" in " ".join(sweep_lines(sweep))
    real = replace(sweep, about={**sweep.about, "real_prompts": True})
    assert "a prefix cache may know them" in " ".join(" ".join(sweep_lines(real)).split())
