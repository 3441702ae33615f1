"""Options of a search for a number: of users, and what the search compares."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from servetwin.app.scenario.options.common import ThinkTime
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.workloads.errors import PluginError, PolicyError, ServetwinError

if TYPE_CHECKING:
    from servetwin.app.scenario.prices import Prices
    from servetwin.sim.experiments.scenario import Scenario
    from servetwin.workloads.generators.pauses import PauseDistribution
    from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class CountOptions:
    """What is counted, up to which number, and what a device costs."""

    PANEL: ClassVar = "How many"

    users: Annotated[bool, Option("--users")] = False
    """How many users (or agents) at a time, each of which waits for every answer."""
    think_time: ThinkTime = None
    most: Annotated[int | None, Option(min=1, max=100_000)] = None
    """Most replicas or users that are tried; default 1,024."""
    price: Annotated[str | None, Option(metavar="N|DEVICE=N,...")] = None
    """What a device costs per hour, in any currency: 2.5, or h100=2.5,l40s=0.9."""

    def check(self, counts_replicas: bool) -> None:
        """Raise ``PolicyError`` for options that do not go together."""
        if self.users and counts_replicas:
            raise PolicyError("--users: asks for users; give --replicas N beside it, with a number")
        if self.think_time is not None and not self.users:
            raise PolicyError("--think-time: is of users: give --users as well")
        if self.most is not None and not (self.users or counts_replicas):
            raise PolicyError("--most: is of replicas or users: give --replicas or --users as well")

    def think(self) -> "PauseDistribution | None":
        """Return the think times; raises ``TraceError`` where they cannot be read."""
        from servetwin.app.scenario.options.distributions import think_time_of

        return None if self.think_time is None else think_time_of(self.think_time)

    def prices(self) -> "Prices":
        """Return the prices; raises ``PolicyError`` where they cannot be read."""
        from servetwin.app.scenario.prices import parse_prices

        return parse_prices(self.price or "", "--price")


def candidates(
    vary: Sequence[str], options: ScenarioOptions, trace: "Trace", say: Callable[[str], object]
) -> "dict[str, Scenario | ServetwinError]":
    """Return the scenario of every combination of ``vary`` by its label, or why it cannot be.

    ``say`` gets what a user should know. Raises ``PolicyError`` for what varies nothing.
    """
    from servetwin.app.scenario.sweep_axes import combinations, parse_axis, scenario_at

    found: dict[str, Scenario | ServetwinError] = {}
    for values in combinations([parse_axis(text) for text in vary]):
        label = " ".join(f"{key}={value}" for key, value in values.items())
        try:
            found[label] = scenario_at(options, trace, values, say)
        except PluginError:  # a fault of the plug-in, not of this candidate
            raise
        except ServetwinError as error:
            found[label] = error
    return found
