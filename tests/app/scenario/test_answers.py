"""Answers: in which unit, at what cost, and which is best whatever the order."""

from dataclasses import replace
from itertools import permutations

import pytest

from servetwin.app.scenario.answers import Answer, best, of_counts
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.prices import Prices, parse_prices
from servetwin.sim.experiments.how_many import CountSearch, HowMany, TriedCount
from servetwin.sim.experiments.search import TurningPoint


def found() -> HowMany:
    tried = tuple(
        TriedCount(n, 200, share, {"ttft_s": s}, s / 0.5, 3.2 / n, share > 0.99)
        for n, share, s in ((3, 0.4, 0.8), (4, 1.0, 0.3))
    )
    return HowMany(CountSearch(tried, TurningPoint(3, 4), True))


def test_gpus_are_replicas_times_the_devices_of_one() -> None:
    options = Deployment(model="llama-3.1-8b", gpu="h100", techniques=("tensor-parallel:ways=2",))
    scenario = options.servers().scenario()
    answer = of_counts("tp", "devices", scenario, found(), parse_prices("h100=2.5", "--price"))
    assert (answer.count, answer.devices, answer.cost_per_h) == (8, {"h100": 8}, 20.0)
    assert [point.count for point in answer.points] == [6, 8]
    assert answer.beyond is not None
    assert answer.beyond.count == 6
    replicas = of_counts("tp", "replicas", scenario, found(), Prices())
    assert (replicas.count, replicas.devices, replicas.cost_per_h) == (4, {"h100": 8}, None)


def test_the_best_is_the_cheapest_else_that_of_the_fewest_devices_whatever_the_order() -> None:
    many = Answer("many", "devices", 6, devices={"l40s": 6}, cost_per_h=6.0)
    few = Answer("few", "devices", 2, devices={"h100": 2}, cost_per_h=8.0)
    same = Answer("also", "devices", 6, devices={"l4": 6}, cost_per_h=6.0)
    none = Answer("none", "devices", None)
    wrong = Answer("wrong", "devices", problem="does not fit")
    for order in permutations([many, few, none, same, wrong]):
        assert best(order) == same
        assert best([replace(one, cost_per_h=None) for one in order]) == replace(
            few, cost_per_h=None
        )
    assert best([none, wrong]) is None


@pytest.mark.parametrize("what", ["users", "rate"])
def test_the_best_serves_most_users_or_requests(what: str) -> None:
    answers = [Answer(name, what, n) for name, n in (("a", 4), ("b", 9), ("c", 9), ("d", 0))]  # type: ignore[arg-type]
    for order in permutations(answers):
        assert best(order) == answers[1]
