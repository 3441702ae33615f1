"""Steps that stamps tell: those of a simulated server are known exactly, and are what is told."""

from dataclasses import replace
from functools import cache

import pytest

from servetwin.app.verdict.claims import Comparison, Outcome
from servetwin.app.verdict.observed_steps import BLOCK_S, busy_s, observed_frame, steps_frame
from servetwin.app.verdict.two_claims import STEPS, StepsInBeats, TwoClaims
from servetwin.app.verdict.verification import BLACK_BOX_LIMITS
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.transform import at_rate
from tests.support.fake_calibrator import PROFILE, TRACE
from tests.support.figure_frames import load_test
from tests.support.stamped_runs import stamped

FIT = next(iter(PROFILE.layouts.values()))
RATE_PER_S = 3.5


@cache
def load_tests() -> tuple[Run, ...]:
    return tuple(stamped(at_rate(TRACE, RATE_PER_S + 0.1 * n), PROFILE) for n in range(2))


def outside(run: Run) -> Run:
    """The load test of a server whose log nobody can read."""
    return replace(run, records=[])


def test_told_steps_are_those_of_the_server() -> None:
    for run in load_tests():
        frame = observed_frame(run, PROFILE.policy_config(), FIT)
        assert frame["took_s"].to_numpy() == pytest.approx(frame["stated_s"].to_numpy(), rel=1e-6)
        assert len(frame) > 0.8 * len(run.records)
        assert 0.6 < frame["took_s"].sum() / busy_s(run) <= 1.0


def test_steps_are_in_blocks_of_three_seconds_from_the_first_on() -> None:
    shapes = [load_tests()[0].records[0].shape()]
    frame = steps_frame([(at_s, shapes, 0.1) for at_s in (7.0, 9.9, 10.0, 12.9, 13.1)], FIT)
    assert frame["block"].to_list() == [0, 0, 1, 1, 2]
    assert (BLOCK_S, frame["began_s"][0]) == (3.0, 7.0)


def judged(profile: Profile = PROFILE, runs: tuple[Run, ...] | None = None) -> TwoClaims:
    chosen = runs if runs is not None else tuple(map(outside, load_tests()))
    return TwoClaims.of(chosen, TRACE, profile, BLACK_BOX_LIMITS, 0)


def rest(comparison: Comparison) -> set[Outcome | None]:
    return {
        row.outcome for row in comparison.metrics if row.metric in set(BLACK_BOX_LIMITS) - {STEPS}
    }


@pytest.mark.parametrize(
    ("scale", "outcome"), [(1.0, "holds"), (1.08, "holds"), (1.13, "refuted"), (0.88, "refuted")]
)
def test_both_claims_are_judged_by_stamps_alone(scale: float, outcome: Outcome) -> None:
    """At the measured pace, a wrong scale of all steps is no error of the rest."""
    claims = judged(PROFILE.scaled(scale))
    row = claims.comparison.metrics[0]
    assert (claims.steps.clock, row.metric, row.limit) == ("stamps", STEPS, 0.10)
    assert row.error == pytest.approx(scale - 1, abs=1e-6)
    assert (row.outcome, claims.comparison.outcome) == (outcome, outcome)
    assert rest(claims.comparison) == {"holds"}


def test_a_wrong_setting_is_an_error_of_the_rest() -> None:
    policies = replace(PROFILE.policy_config(), max_seqs=2)
    claims = judged(PROFILE.with_policies(policies))
    assert "refuted" in rest(claims.comparison)


def test_a_machine_that_drifted_between_rounds_refutes_less() -> None:
    drifting = PROFILE.scaled(1.13)
    fit = next(iter(drifting.layouts.values())).model_copy(update={"drift": 0.1})
    claims = judged(drifting.model_copy(update={"layouts": {"paged": fit}}))
    assert claims.comparison.metrics[0].outcome == "cannot tell"
    assert claims.comparison.vague == [STEPS, *claims.comparison.vague[1:]]


def test_a_log_without_a_beat_is_judged_in_wall_time() -> None:
    claims = judged(runs=load_tests())
    assert (claims.steps.clock, claims.steps.told) == ("log", 1.0)
    assert claims.comparison.metrics[0].error == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("logged", [True, False])
def test_a_latency_is_as_unsure_as_the_pace_that_stamps_tell(logged: bool) -> None:
    claims = judged(runs=load_tests() if logged else None)
    row = next(row for row in claims.comparison.metrics if row.metric == "tpot_s.mean")
    assert row.predicted is not None
    unsure = row.predicted.high / row.predicted.value - 1
    assert unsure == pytest.approx(claims.whole["tpot_s"].unsure * (claims.steps.clock == "stamps"))
    assert claims.whole["tpot_s"].unsure > 0.012, "at least the interval of the steps"


def test_stamps_that_tell_too_little_decide_nothing() -> None:
    frame = judged().steps.frame
    (doubt,) = StepsInBeats(frame, 0, 1.0, 0.0, 0.0, clock="stamps", told=0.04).doubts()
    assert doubt.startswith("the stamps of tokens tell the steps of 4 % of the time")


def test_answers_of_one_token_tell_no_step() -> None:
    short = replace(TRACE, requests=tuple(replace(one, output_tokens=1) for one in TRACE))
    runs = [outside(stamped(at_rate(short, RATE_PER_S + 0.1 * n), PROFILE)) for n in range(2)]
    claims = TwoClaims.of(runs, short, PROFILE, BLACK_BOX_LIMITS, 0)
    assert (claims.steps.told, claims.comparison.outcome) == (0.0, "cannot tell")
    assert "ask for longer answers" in claims.comparison.doubts[0]


def test_a_server_is_busy_while_any_answer_goes_on() -> None:
    run = load_test(3, first_token_s=[0.0, 1.0, 10.0], last_token_s=[2.0, 3.5, 11.0])
    assert busy_s(run) == pytest.approx(3.5 + 1.0)
