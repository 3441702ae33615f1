"""A simulation divided into parts on many processes, whose result is that of one process."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from servetwin.sim.streams.merged_parts import chained, merged
from servetwin.sim.streams.part_run import DividedRun, PartDone, part_folder
from servetwin.sim.streams.partition import (
    Part,
    has_one_server,
    joined,
    parts_of,
    require_partitionable,
)
from servetwin.sim.streams.row_groups import SCHEMAS
from servetwin.sim.streams.run_tables import RunTables

Advance = Callable[[int], None]
Simulated = Callable[[DividedRun, Sequence[Part]], Iterator[tuple[int, PartDone]]]
"""Simulates parts (``sim.streams.part_run``); yields the place and the end of each."""


def run_partitioned(
    run: DividedRun,
    tables: RunTables,
    *,
    parts: int,
    simulated: Simulated,
    on_arrival: Advance,
) -> float:
    """Simulate in up to ``parts`` parts, as ``simulated`` maps them; remove the spool.

    Return the seconds that took. Raises ``PolicyError`` where the run cannot be divided.
    """
    started_s = time.perf_counter()
    try:
        require_partitionable(run.scenario)
        shutil.rmtree(run.spool, ignore_errors=True)  # of a run that was killed
        cuts = run.trace.found.quiet.cuts(parts)
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
