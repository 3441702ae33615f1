"""Which GPUs, how many, and how split: the cheapest servers that hold an SLO for a trace."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil, inf

import pandas as pd

from servetwin.app.plan.day import PlannedDay, plan_day, require_day
from servetwin.app.plan.server_command import ServerCommand
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.simulations import PlanOptions
from servetwin.app.scenario.prices import LISTED, Prices, parse_prices
from servetwin.app.scenario.scenarios import fitted
from servetwin.app.words import slo_words, target_words
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.experiments import fewest_devices as search
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.experiments.fewest_devices import Candidate, Planned, PlanQuestion
from servetwin.sim.experiments.fleet import times
from servetwin.sim.experiments.predict import Interval, require_energy, run_energy, run_once
from servetwin.sim.explain.bottleneck import Resource
from servetwin.sim.records.metrics import SLO
from servetwin.sim.step_times.provenance import Origin
from servetwin.workloads.errors import PolicyError, ServetwinError
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

_BUDGETS = (2048, 4096, 8192, 16384)


@dataclass(frozen=True, slots=True)
class PlannedDeployment:
    """The servers of one kind of GPU; where they cannot be, ``problem`` says why.

    ``servers`` and what they cost include the spares; ``capacity_per_s``, requests per second that
    the others take together, does not. ``headroom`` is the share of the limits that is left at the
    load, negative where they are missed. ``cost_per_million_tokens`` is that of prompts and answers
    together, at the load; its interval is that of as many servers as the interval of the capacity
    asks for. ``joules_per_token`` is the energy of an output token, without the spares.
    ``command`` starts one server (a line each, where prefill and decode are apart),
    ``manifest`` all on Kubernetes (YAML); ``deployment`` is one of them, as a scenario has it.
    ``day`` is their fleet over a day, where that was asked for.
    """

    gpu: str
    problem: str = ""
    headroom: float | None = None
    servers: int = 0
    gpus: int = 0
    layout: str = ""
    cost_per_h: float | None = None
    cost_per_million_tokens: Interval | None = None
    capacity_per_s: Interval | None = None
    joules_per_token: Interval | None = None
    limited_by: Resource | None = None
    evidence: Origin | None = None
    command: str = ""
    manifest: str = ""
    deployment: Deployment = Deployment()  # noqa: RUF009 - it is frozen
    day: PlannedDay | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer: a row for each kind of GPU, the cheapest first, those with problems last."""

    model: str
    target: SLOTarget
    requests: int
    rate_per_s: float
    rows: tuple[PlannedDeployment, ...]
    lanes: int = 0
    """How many agents are at work at a time; 0 where requests come at a rate."""

    def frame(self) -> pd.DataFrame:
        """Return the rows as a frame, without manifests, deployments and days."""
        left_out = ["manifest", "deployment", "day"]
        return pd.DataFrame(list(map(asdict, self.rows))).drop(columns=left_out)


@dataclass(frozen=True, slots=True)
class _Query:
    """What all kinds of GPUs have in common."""

    question: PlanQuestion
    command: ServerCommand
    prices: Prices
    options: PlanOptions


def plan(
    trace: Trace,
    model: str,
    slo: SLO,
    *,
    attainment: float = 0.99,
    seed: int = 0,
    options: PlanOptions = PlanOptions(processes=1),  # noqa: B008 - it is frozen
    on_gpu: Callable[[int], None] = lambda done: None,
) -> Plan:
    """Find the cheapest servers of ``model`` for which ``attainment`` of the requests hold ``slo``.

    ``options`` are those of ``servetwin plan``; ``on_gpu`` gets how many kinds of GPUs are done.
    Raises ``ServetwinError`` where no GPU holds the SLO: which limit is missed, and what can be
    held.
    """
    find_model(model)
    if options.day is not None:
        require_day(trace, options.day)
    names = gpus_of(options)
    target = SLOTarget(slo, attainment)
    question = PlanQuestion(
        trace, target, options.most_gpus, seed, options.replications, options.spares
    )
    prices = parse_prices(options.price or "", "--price").over_listed()
    query = _Query(question, ServerCommand.of(options.server, model), prices, options)
    rows: list[PlannedDeployment] = []
    for _, row in options.map(partial(plan_gpu, query), names, lambda place: names[place]):
        rows.append(row)
        on_gpu(len(rows))
    rows.sort(key=rank)
    if rows[0].problem:
        nearest = max(rows, key=lambda row: row.headroom or -inf)
        raise PolicyError(f"no plan for {target_words(target)}: {nearest.problem}")
    lanes = trace.lanes.lanes if trace.lanes else 0
    return Plan(model, target, len(trace), trace.rate_per_s, tuple(rows), lanes)


def gpus_of(options: PlanOptions) -> list[str]:
    """Return the kinds of GPUs to choose from, each once."""
    given = ",".join(options.gpu or [LISTED["usual"]]).split(",")
    return list(dict.fromkeys(find_hardware(name).name for name in given))


def rank(row: PlannedDeployment) -> tuple[bool, float, float, str]:
    """Return the order of rows: the cheapest (over the day) first, those with problems last."""
    cost, size = row.cost_per_h, float(row.gpus)
    if (day := row.day) is not None:
        cost, size = day.cost, size / row.servers * day.fleet.replica_hours
    return bool(row.problem), inf if cost is None else cost, size, row.gpu


def plan_gpu(query: _Query, gpu: str) -> PlannedDeployment:
    """Return the servers of one kind of GPU, or why there are none."""
    problems: list[str] = []

    def others(best: Candidate) -> Iterator[Candidate]:
        usual = best.scenario.policies.token_budget
        return (_candidate(query, gpu, best.layout, n) for n in _BUDGETS if n != usual)

    try:
        candidates = list(_candidates(query, gpu, problems))
        if not candidates:
            return PlannedDeployment(gpu, problems[-1])
        planned = search.fewest_devices(query.question, candidates, others)
        if not planned.at.holds:
            problem = _missed_words(query.question.target, gpu, planned)
            return PlannedDeployment(gpu, problem, 1 - planned.at.factor)
        row = _row(query, gpu, planned)
        if (settings := query.options.day) is None or row.problem:
            return row
        price = query.prices.per_hour({gpu: planned.candidate.layout.devices})
        model = find_model(query.command.model)
        return replace(row, day=plan_day(query.question, planned, model, settings, price))
    except ServetwinError as error:
        return PlannedDeployment(gpu, str(error))


def _candidates(query: _Query, gpu: str, problems: list[str]) -> Iterator[Candidate]:
    """Yield the layouts that can be; ``problems`` gets why others cannot."""
    for layout in search.layouts(find_model(query.command.model)):
        try:
            yield _candidate(query, gpu, layout)
        except ServetwinError as error:
            problems.append(str(error))


def _candidate(query: _Query, gpu: str, layout: Layout, budget: int | None = None) -> Candidate:
    """Return a candidate, its model length cut where the KV memory takes no such request.

    Raises ``ServetwinError`` where it cannot be.
    """
    trace = query.question.trace
    longest = trace.longest_tokens
    for length in (None, 1024 * ceil((longest + 1) / 1024)):
        command = query.command.on(layout, max_model_len=length, token_budget=budget)
        scenario, _ = fitted(command.deployment(gpu).servers(), trace, {})
        if (kv_tokens := scenario.policies.kv_tokens) >= scenario.policies.max_model_len:
            break
    if kv_tokens < longest:
        raise PolicyError(
            f"{command.model} on {layout.devices} x {gpu}: {kv_tokens:,} tokens of KV memory do "
            f"not take a request of {longest:,}"
        )
    return Candidate(command.words, layout, scenario)


def _row(query: _Query, gpu: str, planned: Planned) -> PlannedDeployment:
    candidate, trace, options = planned.candidate, query.question.trace, query.options
    start = replace(query.command, words=candidate.command)
    starts, counts, layout = {"": start}, {"": planned.servers}, candidate.layout
    if (cluster := candidate.scenario.cluster).splits:
        counts = {"prefill": cluster.prefill_replicas, "decode": cluster.decode_replicas}
        starts = start.apart()
    counts = {phase: count + options.spares for phase, count in counts.items()}
    servers = sum(counts.values())
    gpus, limiting = servers * layout.devices, planned.limiting
    cost = query.prices.per_hour({gpu: gpus})
    problem = f"{counted(gpus, 'GPU')} with the spares" if gpus > options.most_gpus else ""
    if options.budget is not None and (cost is None or cost > options.budget):
        price = "price unknown" if cost is None else f"{cost:,.2f} per hour"
        problem = f"{counted(gpus, 'GPU')} ({price}), above the budget of {options.budget:g}"
    phases = ", ".join(f"{count} {phase}" for phase, count in counts.items() if phase)
    manifests = (
        one.manifest("-".join(filter(None, (gpu, phase))), gpu, layout.devices, counts[phase])
        for phase, one in starts.items()
    )
    return PlannedDeployment(
        gpu, problem, 1 - planned.at.factor, servers, gpus,
        f"{layout} ({phases})" if phases else str(layout), cost,
        _cost_of_tokens(trace, cost, servers, planned),
        planned.capacity_per_s, _joules_per_token(query.question, planned),
        limiting.resource if limiting else None,
        candidate.scenario.profile.origin,
        "\n".join(one.text for one in starts.values()), "---\n".join(manifests),
        start.deployment(gpu),
    )  # fmt: skip


def _cost_of_tokens(
    trace: Trace, cost_per_h: float | None, servers: int, planned: Planned
) -> Interval | None:
    """Return the cost of a million tokens at the load; a capacity grows with the servers."""
    tokens_per_h = 3600 * trace.rate_per_s * sum(r.total_tokens for r in trace) / len(trace)
    if cost_per_h is None or not tokens_per_h:
        return None
    value, at, serving = 1e6 * cost_per_h / tokens_per_h, planned.capacity_per_s, planned.servers

    def cost(capacity_per_s: float) -> float:
        if capacity_per_s <= 0:
            return inf
        needed = ceil(serving * trace.rate_per_s / capacity_per_s)
        return value * (needed + servers - serving) / servers

    if at is None or at.low == at.high:
        return Interval(value, value, value)
    return Interval(value, min(value, cost(at.high)), max(value, cost(at.low)))


def _joules_per_token(question: PlanQuestion, planned: Planned) -> Interval | None:
    """Return the energy of an output token at the load, without spares; None where not known."""
    scenario = times(planned.candidate.scenario, planned.at.count)
    try:
        require_energy(scenario)
    except PolicyError:
        return None
    run = run_once(question.part, scenario, seed=question.seed)
    return run_energy(run, scenario).joules_per_token


def _missed_words(target: SLOTarget, gpu: str, missed: Planned) -> str:
    """Return which limits no number of servers holds, and what could be held."""
    at, limits_s = missed.at, asdict(target.slo)
    least_s = {name: float(f"{s:.3g}") for name, s in at.latencies_s.items() if s > limits_s[name]}
    wanted = slo_words(SLO(**{name: limits_s[name] for name in least_s})) or target_words(target)
    count = "a request alone holds" if missed.alone else f"{at.count} servers hold"
    nearest = f" (nearest: {slo_words(SLO(**least_s))})" if least_s else ""
    return f"{gpu} ({missed.candidate.layout}): not even {count} {wanted}{nearest}"
