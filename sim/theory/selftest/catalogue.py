"""All scenarios, and how to find and judge them by name."""

from collections.abc import Iterable

from sim.theory.selftest.batches import BATCHING
from sim.theory.selftest.judge import Outcome, judge
from sim.theory.selftest.losses import LOSSES
from sim.theory.selftest.many_servers import MANY_SERVERS
from sim.theory.selftest.networks import NETWORKS
from sim.theory.selftest.orders import ORDERS
from sim.theory.selftest.scenario import Scenario
from sim.theory.selftest.single_server import SINGLE_SERVER
from workloads.errors import ServetwinError, did_you_mean

SCENARIOS = {
    scenario.name: scenario
    for scenario in (*SINGLE_SERVER, *ORDERS, *MANY_SERVERS, *BATCHING, *LOSSES, *NETWORKS)
}


class UnknownScenario(ServetwinError):
    """Nobody wrote a scenario of that name."""


def scenarios_named(names: Iterable[str]) -> list[Scenario]:
    """The scenarios of those names, or all of them. Raises UnknownScenario, with a near name."""
    return [_scenario(name) for name in names] or list(SCENARIOS.values())


def judge_named(name: str) -> list[Outcome]:
    """Judge one scenario, in whatever process."""
    return list(judge(_scenario(name)))


def _scenario(name: str) -> Scenario:
    if name in SCENARIOS:
        return SCENARIOS[name]
    hint = did_you_mean(name, SCENARIOS, f"known are {', '.join(SCENARIOS)}")
    raise UnknownScenario(f"--only: no scenario {name!r}; {hint}")
