"""The same requests give the same results as ever, to the last bit."""

import json

import pytest

from tests.support.digest_scenarios import FILE, scenarios

WANTED = json.loads(FILE.read_text())
SCENARIOS = scenarios()


def test_every_scenario_has_a_digest() -> None:
    assert list(SCENARIOS) == list(WANTED)
    assert len(WANTED) >= 200


@pytest.mark.parametrize("part", range(10))
def test_results_are_equal_to_the_last_bit(part: int) -> None:
    names = list(SCENARIOS)[part::10]
    assert {name: SCENARIOS[name]() for name in names} == {name: WANTED[name] for name in names}
