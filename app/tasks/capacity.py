"""Search the rate, the replicas or the users with which an SLO is kept."""

from collections.abc import Callable
from dataclasses import dataclass

import typer

from servetwin.app.command import print_result
from servetwin.app.reports import how_many as count_report
from servetwin.app.reports.progress import progress
from servetwin.app.reports.run_words import outside_warning
from servetwin.app.scenario.answers import WAITING, Answer, What, of_capacity, of_counts
from servetwin.app.scenario.options.distributions import think_time_of
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.app.scenario.options.simulations import CapacityOptions
from servetwin.app.scenario.prices import Prices, parse_prices
from servetwin.app.scenario.scenarios import repeats_note
from servetwin.app.scenario.sweep_axes import combinations, scenario_at, swept_axes
from servetwin.app.words import print_notes
from servetwin.sim.experiments.capacity import Replications, SLOTarget, find_capacity
from servetwin.sim.experiments.fleet import Replicas, Users
from servetwin.sim.experiments.how_many import MOST, CountQuestion, how_many
from servetwin.sim.experiments.scenario import Scenario, devices
from servetwin.workloads.errors import PluginError, PolicyError, ServetwinError
from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for every candidate."""

    options: ScenarioOptions
    target: SLOTarget
    query: CapacityOptions

    def report(self) -> None:
        """Print the answer of every candidate; those that cannot be are named with the reason."""
        self.query.check()
        trace = self.options.trace.read()
        what: What = "lanes" if trace.lanes and self.query.what == "users" else self.query.what
        prices = parse_prices(self.query.count.price or "", "--price")
        notes: dict[str, None] = {}
        candidates = self._candidates(trace, notes.setdefault)
        print_notes(notes)
        possible = [one for one in candidates.values() if isinstance(one, Scenario)]
        prices.require_known((name for one in possible for name in devices(one)), "--price")
        answers = [
            self._answer(what, label, trace, one, prices)
            if isinstance(one, Scenario)
            else Answer(label, what, problem=str(one))
            for label, one in candidates.items()
        ]
        if not possible:
            raise PolicyError(answers[0].problem)
        rate = trace.rate_per_s if what == "replicas" else None
        load = f"the {len(trace):,} requests of this trace"
        load += f" at {rate:.4g} requests/s" if rate else ""
        server = [possible[0].profile.describe()[0]] if len(candidates) == 1 else []
        record = {"trace": trace.source, "requests": len(trace), "seed": self.query.seed}
        print_result(
            self.query.json,
            count_report.as_record(answers, self.target, load, record),
            [*server, *count_report.report_lines(answers, self.target, load, len(trace))],
        )
        print_notes([repeats_note(possible[0].policies, trace, self.options.policy)])

    def _candidates(
        self, trace: Trace, say: Callable[[str], object]
    ) -> dict[str, Scenario | ServetwinError]:
        """Return the scenario of every combination of ``--vary``, or why it cannot be."""
        candidates: dict[str, Scenario | ServetwinError] = {}
        for values in combinations(swept_axes(self.query.vary, self.options.servers)):
            label = " ".join(f"{key}={value}" for key, value in values.items())
            try:
                candidates[label] = scenario_at(self.options, trace, values, say)
            except PluginError:  # a fault of the plug-in, not of this candidate
                raise
            except ServetwinError as error:
                candidates[label] = error
        return candidates

    def _answer(
        self, what: What, label: str, trace: Trace, scenario: Scenario, prices: Prices
    ) -> Answer:
        query, target = self.query, self.target
        with progress(f"{label or what}, replications", total=query.draws) as advance:
            draws = Replications(query.draws, query.processes, advance)
            if what == "rate":
                capacity = find_capacity(
                    trace, scenario, target, seed=query.seed, precision=query.precision,
                    replications=draws,
                )  # fmt: skip
                highest = capacity.tried[-1].summary["provenance"]
                if warning := outside_warning(highest, widened=capacity.replications > 1):
                    typer.echo(warning, err=True)
                return of_capacity(label, scenario, capacity, target, prices)
            counted: Users | Replicas = Replicas(trace, scenario)
            if what in WAITING:
                pauses = query.count.think_time
                think = think_time_of(pauses) if pauses else None
                counted = Users(trace, scenario, think, query.seed)
            question = CountQuestion(target, query.count.most or MOST, query.seed, query.precision)
            return of_counts(label, what, scenario, how_many(counted, question, draws), prices)
