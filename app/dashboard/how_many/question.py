"""The question of the page How many, from its controls."""

from dataclasses import dataclass

from servetwin.app.dashboard.how_many.search_job import Asked
from servetwin.app.scenario.answers import What
from servetwin.app.scenario.files.scenario_file import ScenarioError, ScenarioFile
from servetwin.app.scenario.options.distributions import think_time_of
from servetwin.app.scenario.prices import Prices, parse_prices
from servetwin.app.words import METRICS
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.records.metrics import LATENCIES, SLO

ALL = "the whole SLO"
METRICS_OF: dict[str, str | None] = {**{METRICS[name].label: name for name in LATENCIES}, ALL: None}
"""What a limit may be on, by its name on the page: a latency, or every limit at the side."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What must hold: for a ``share`` of the requests; ``limit_ms`` None is that at the side."""

    metric: str
    share: float
    limit_ms: float | None


def asked(base: ScenarioFile, limit: Limit, what: What, think: str) -> Asked:
    """Return the question; raises ``ServetwinError`` for a missing limit or a wrong text."""
    slo, name = base.slo.slo(), METRICS_OF[limit.metric]
    if name is not None:
        limit_s = getattr(slo, name) if limit.limit_ms is None else limit.limit_ms / 1000
        slo = SLO(**{name: limit_s})
    if slo == SLO():
        raise ScenarioError(f"{limit.metric}: no limit; give one here, or in the SLO at the side")
    if think.strip():
        think_time_of(think.strip(), "think time")
    return Asked(what, SLOTarget(slo, limit.share), think.strip())


def prices_of(text: str) -> Prices:
    """Return the prices in a text; raises ``PolicyError``."""
    return parse_prices(text, "price")
