"""A trial has the same words in the terminal, in a report and on a page."""

import pytest

from servetwin.app.reports.run_words import load_words, measured_noun, recorded_words
from tests.support.figure_frames import load_test


@pytest.mark.parametrize(
    ("scenario", "noun"),
    [({}, "load test"), ({"recorded_by": "stamps of the engine"}, "recorded run")],
)
def test_a_run_of_another_tool_is_no_load_test(scenario: dict[str, str], noun: str) -> None:
    assert measured_noun(scenario) == noun
    assert load_words(240, 6.812, 2, scenario) == f"240 requests at 6.81/s, 2 {noun}s"
    assert load_words(1, None, 1, scenario) == f"1 request, 1 {noun}"


def test_a_recorded_run_names_its_tool_and_its_requests() -> None:
    run = load_test(8)
    run.scenario |= {"recorded_by": "stamps of the engine", "trace": "measured.jsonl"}
    assert recorded_words(run) == "recorded by stamps of the engine: 8 requests of measured.jsonl"
