"""The core loop: when requests arrive, and how its messages are grouped."""

from servetwin.engine.sampling.sampling_params import SamplingParams
from tests.support.core_story import FIVE, STEP_S, Story, add, policy
from tests.support.fake_engine import fake_core
from tests.support.timed_requests import TimedRequest, run_requests


def test_a_request_arrives_at_the_turn_that_hands_it_over() -> None:
    story = Story(policy(), FIVE)
    arrivals = [(seq.request_id, seq.arrival_s) for seq in story.log.arrivals]
    assert arrivals == [("a", 0.0), ("b", 0.0), ("c", 2.0), ("d", 3.0), ("e", 9.0)]
    assert [record.duration_s for record in story.log.records] == [STEP_S] * 6
    assert [record.step for record in story.log.records] == [0, 1, 2, 3, 4, 5]


def test_events_of_one_step_are_one_message() -> None:
    story = Story(policy(), [(0.0, add("a", 1, 2)), (0.0, add("b", 1, 2))])
    sent = [[event.request_id for event in update.events] for update in story.updates]
    assert sent == [["a", "b"], ["a", "b"]]
    assert [update.stats.running for update in story.updates] == [2, 0]


def test_run_requests_runs_on_the_wall_clock() -> None:
    core = fake_core(policy())
    requests: list[TimedRequest] = [
        (0.2, "b", [400], SamplingParams(2)),
        (0.0, "a", [300], SamplingParams(3)),
        (0.0, "long", [300] * 40, SamplingParams(3)),
    ]
    events = run_requests(core, requests)
    assert [(event.request_id, event.token_id) for event in events] == [
        ("a", 301),
        ("a", 302),
        ("a", 303),
        ("b", 401),
        ("b", 402),
    ]
