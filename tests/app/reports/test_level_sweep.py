"""A sweep in words."""

from dataclasses import replace

from servetwin.app.reports.level_sweep import knee_sentences, sweep_lines
from servetwin.loadtest.sweep.sweep import PredictedKnee
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


def test_the_knee_stands_beside_the_predicted_one() -> None:
    found = list(knee_sentences(swept(wanted=0.975)))
    assert found[0].startswith("knee: 5 requests/s")
    assert "90% interval" in found[0]
    assert ", 95 %: 5 to 5.4" in found[1]
    assert found[1].endswith("of the measured one, inside its interval")
    assert len(found) == 2
    far = replace(swept(wanted=0.975), predicted=PredictedKnee(50.0))
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
