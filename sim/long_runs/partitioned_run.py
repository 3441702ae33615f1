"""How a simulation is divided into parts that know nothing of each other, and when it cannot be.

==========  ======================================================================================
time        one server: cut where it is empty. What comes later cannot depend on what was before,
            as long as nothing outlasts the requests: no cache, no noise by number of the step
replicas    several servers behind a router that looks at no state: which server gets a request is
            known without simulating any of them
==========  ======================================================================================
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import MEMORIES, ROUTERS, SCHEDULERS
from servetwin.policies.routers.routing import BLIND_ROUTERS
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.long_runs.row_tables import SCHEMAS, RunTables, Spool, TableSink, spooled
from servetwin.sim.long_runs.streamed_run import row_recorder, simulate_rows
from servetwin.sim.step_times.step_time import StepNoise
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.plugins import names_a_file
from servetwin.workloads.streams.streamed_trace import StreamedTrace

BLIND_NAMES = tuple(name for name, router in ROUTERS.items() if router in BLIND_ROUTERS)
"""The names of the routers that look at no state."""


@dataclass(frozen=True, slots=True)
class Part:
    """Requests from row ``first`` up to and without ``last``, on some ``replicas`` (None: all)."""

    first: int
    last: int
    replicas: frozenset[int] | None = None

    @property
    def name(self) -> str:
        """The name of the part in messages."""
        share = "" if self.replicas is None else f", replicas from {min(self.replicas)} on"
        return f"part of the requests {self.first:,} to {self.last:,}{share}"


def has_one_server(scenario: Scenario) -> bool:
    """Return whether a scenario is cut by time; a cluster is cut by replicas."""
    return len(scenario.servers()) == 1 and not scenario.cluster.splits


def require_partitionable(scenario: Scenario) -> None:
    """Raise ``PolicyError``, with the key, where parts of a run would depend on each other."""
    why = _time_hindrance(scenario) if has_one_server(scenario) else _replica_hindrance(scenario)
    if scenario.cluster.ranks > 1:
        why = "ranks: the ranks of a server step together"
    if why:
        raise PolicyError(f"--partitions: {why}; leave --partitions out")


def _replica_hindrance(scenario: Scenario) -> str | None:
    cluster = scenario.cluster
    if cluster.splits:
        return "prefill_replicas: prompts and decodes of a request are on different servers"
    if cluster.router not in BLIND_NAMES:
        looks = "looks at" if cluster.router in ROUTERS else "may look at"
        known = ", ".join(BLIND_NAMES)
        return f"router: {cluster.router!r} {looks} the state of the replicas; {known} do not"
    return None


def _time_hindrance(scenario: Scenario) -> str | None:
    policies = scenario.policies
    if policies.prefix_cache:
        return "prefix_cache: the cache outlasts the requests that filled it"
    if policies.queue_order == "fair":
        return "queue_order: 'fair' remembers the service of each tenant"
    for key, name, known in (
        ("batching", policies.batching, SCHEDULERS), ("kv", policies.kv, MEMORIES),
    ):  # fmt: skip
        if names_a_file(name) or name not in known:
            return f"{key}: {name!r} may remember what was before"
    return _noise_hindrance(scenario, policies)


def _noise_hindrance(scenario: Scenario, policies: PolicyConfig) -> str | None:
    layout = build_scheduler(policies).memory.layout
    sample = scenario.profile.step_time(layout).noise_factors()
    if StepNoise(sample, np.random.default_rng(0)).is_none():
        return None
    return f"profile: {scenario.profile.name} has noise, drawn by the number of the step"


def parts_of(scenario: Scenario, requests: int, cuts: Sequence[int], parts: int) -> list[Part]:
    """Divide a run: one server before the requests ``cuts``, a cluster into ``parts`` shares."""
    if has_one_server(scenario):
        ends = [*cuts, requests]
        return [Part(first, last) for first, last in zip([0, *cuts], ends, strict=True)]
    replicas = range(len(scenario.servers()))
    shares = min(parts, len(replicas))
    return [Part(0, requests, frozenset(replicas[share::shares])) for share in range(shares)]


def joined(parts: Sequence[Part], was_empty: Sequence[bool]) -> list[list[Part]]:
    """Group consecutive parts of one server that were not separated by an empty moment.

    ``was_empty`` says for each cut whether the server was empty there.
    """
    groups = [[parts[0]]]
    for part, empty in zip(parts[1:], was_empty, strict=True):
        if empty:
            groups.append([part])
        else:
            groups[-1].append(part)
    return groups


@dataclass(frozen=True, slots=True)
class DividedRun:
    """The inputs that all parts share; ``spool`` is a folder that all processes see."""

    trace: StreamedTrace
    scenario: Scenario
    seed: int
    macro: bool
    spool: Path


@dataclass(frozen=True, slots=True)
class PartDone:
    """When the first request of a part arrives, and when the server is empty after the last."""

    first_arrival_s: float
    empty_s: float


def part_folder(spool: Path, part: Part) -> Path:
    """Return where the rows of a part are."""
    share = "" if part.replicas is None else f"-{min(part.replicas)}"
    return spool / f"{part.first}-{part.last}{share}"


def simulate_part(run: DividedRun, part: Part) -> PartDone:
    """Simulate a part and spool its rows."""
    spool = Spool(part_folder(run.spool, part))
    sink = TableSink(spool.write)
    requests = run.trace.requests(part.first, part.last)
    first = next(requests)
    try:
        last_event_s = simulate_rows(
            chain([first], requests),
            run.scenario,
            row_recorder(run.scenario, sink.add, part.first),
            seed=run.seed,
            macro=run.macro,
            replicas=part.replicas,
        )
    finally:
        spool.close()
    return PartDone(first.arrival_s, max(sink.latest_end_s, last_event_s))


KEYS = {
    "requests": ("row",),
    "steps": ("end_s", "replica"),
    "pauses": ("row", "preempted_s"),
    "handovers": ("row",),
}
"""The sort keys of each table."""


@dataclass
class _Head:
    """The next rows of a part, and the pieces behind them."""

    behind: Iterator[pa.Table]
    rows: pa.Table | None = None
    keys: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    ended: bool = False

    def lengthen(self, key: str) -> None:
        """Add the next piece."""
        piece = next(self.behind, None)
        if piece is None:
            self.ended = True
            return
        self.rows = piece if self.rows is None else pa.concat_tables([self.rows, piece])
        self.keys = self.rows[key].to_numpy()

    def taken(self, rows: int) -> pa.Table | None:
        """Take the first rows away."""
        if self.rows is None or not rows:
            return None
        first, self.rows = self.rows.slice(0, rows), self.rows.slice(rows)
        self.keys = self.keys[rows:]
        return first


def chained(folders: Sequence[Path], name: str) -> Iterator[pa.Table]:
    """Yield the rows of a table of parts that follow each other."""
    return chain.from_iterable(spooled(folder, name) for folder in folders)


def merged(folders: Sequence[Path], name: str) -> Iterator[pa.Table]:
    """Yield the rows of a table of parts side by side in the order of ``KEYS``.

    The rows of each part are in this order.

    No more than a few pieces of each part are in memory.
    """
    first_key = KEYS[name][0]
    heads = [_Head(spooled(folder, name)) for folder in folders]
    while True:
        for head in heads:
            if not head.ended and not len(head.keys):
                head.lengthen(first_key)
        open_ends = [head.keys[-1] for head in heads if not head.ended]
        bound = min(open_ends, default=np.inf)  # rows up to there have all been seen, but for ties
        taken = [head.taken(int(np.searchsorted(head.keys, bound))) for head in heads]
        if rows := [table for table in taken if table is not None]:
            yield _in_order(pa.concat_tables(rows), KEYS[name])
        elif not open_ends:
            return
        else:
            for head in heads:
                if not head.ended and head.keys[-1] == bound:
                    head.lengthen(first_key)


def _in_order(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    columns = [table[name].to_numpy() for name in keys]
    order = np.lexsort(columns[::-1])
    return table if (order == np.arange(len(order))).all() else table.take(order)


Advance = Callable[[int], None]
Simulated = Callable[[DividedRun, Sequence[Part]], Iterator[tuple[int, PartDone]]]
"""Simulates parts (``sim.long_runs.partitioned_run``); yields the place and the end of each."""


def run_partitioned(
    run: DividedRun, tables: RunTables, *, parts: int, simulated: Simulated, on_arrival: Advance
) -> float:
    """Simulate in up to ``parts`` parts, as ``simulated`` maps them; remove the spool.

    Return the seconds that took. Raises ``PolicyError`` where the run cannot be divided.
    """
    started_s = time.perf_counter()
    try:
        require_partitionable(run.scenario)
        shutil.rmtree(run.spool, ignore_errors=True)  # of a run that was killed
        cuts = run.trace.survey.quiet.cuts(parts)
        planned = parts_of(run.scenario, len(run.trace), cuts, parts)
        done = _right_parts(run, planned, simulated, on_arrival)
        folders = [part_folder(run.spool, part) for part in done]
        together = chained if has_one_server(run.scenario) else merged
        for name in SCHEMAS:
            for table in together(folders, name):
                tables.take(name, table)
    finally:
        shutil.rmtree(run.spool, ignore_errors=True)
    return time.perf_counter() - started_s


def _right_parts(
    run: DividedRun, parts: Sequence[Part], simulated: Simulated, on_arrival: Advance
) -> list[Part]:
    """Simulate the parts; simulate parts without an empty moment between them again, as one.

    Return the parts whose rows are right, in order.
    """
    ended: dict[Part, PartDone] = {}
    while waiting := [part for part in parts if part not in ended]:
        for place, done in simulated(run, waiting):
            ended[waiting[place]] = done
            on_arrival(len(run.trace) * sum(part in ended for part in parts) // len(parts))
        was_empty = [
            after.replicas is not None or ended[before].empty_s < ended[after].first_arrival_s
            for before, after in pairwise(parts)
        ]
        groups = joined(parts, was_empty)
        for part in (part for group in groups if len(group) > 1 for part in group):
            shutil.rmtree(part_folder(run.spool, part), ignore_errors=True)
        parts = [replace(group[0], last=group[-1].last) for group in groups]
    return list(parts)
