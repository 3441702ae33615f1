"""Tasks of agents in a run: their times, and the first tokens of their turns."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from servetwin.sim.records.columns import Columns, Frame, Table, columns_of, rows_of
from servetwin.sim.records.metrics import Floats, describe, measured, ratio
from servetwin.workloads.graphs.lanes import LaneSource
from servetwin.workloads.graphs.task_graph import TaskGraph
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import endless_hits

# The first turn of each row of figures by turn.
FIRST_TURNS = (0, 1, 2, 5, 10, 20, 50)
_USER = "user-"


def task_columns(
    table: Table, requests: Sequence[Request], source: TaskGraph[Any] | LaneSource[Any],
    *, cached_answers: bool = True,
) -> Columns:  # fmt: skip
    """Return the columns of tasks for the requests of a run, and of lanes where these sent them.

    A task is all that waits for each other (``workloads.graphs``); the requests of users are none,
    and have no columns. ``requests`` are in the order of sending; with ``cached_answers`` later
    prompts find the answers that they repeat in the cache.
    """
    if any((request.tenant or "").startswith(_USER) for request in requests):
        return {}
    names = [*table["request_id"]]
    places = {request.request_id: place for place, request in enumerate(requests)}
    rows = [places.get(name, -1) for name in names]
    hits = endless_hits(requests, cached_answers=cached_answers)
    columns = {
        "task": _objects(map(source.task_of, names)),
        "turn": np.array([*(one.turn for one in requests), None], float)[rows],
        "session": _objects([*(one.session_id or "" for one in requests), None])[rows],
        "parents": _objects([*([*one.parent_ids] for one in requests), None])[rows],
        "endless_cached_tokens": np.array([*hits, 0])[rows],
    }
    if isinstance(source, LaneSource):
        columns["warm_up"] = np.array([name in source.warm_up for name in names], bool)
        columns["lane"] = np.array([source.sent[name][0].lane for name in names], int)
    return {**columns, "task_s": _task_times_s(columns["task"], table)}


def _objects(values: Iterable[Any]) -> npt.NDArray[np.object_]:
    return np.fromiter(values, object)


def _numbers(tasks: Iterable[Any]) -> tuple[npt.NDArray[np.int_], int]:
    """Return the number of each task in the order in which they appear, and how many there are.

    What is no name of a task has the number -1.
    """
    numbers: dict[str, int] = {}
    found = [numbers.setdefault(t, len(numbers)) if isinstance(t, str) else -1 for t in tasks]
    return np.array(found, int), len(numbers)


def _task_times_s(tasks: npt.NDArray[np.object_], requests: Table) -> Floats:
    """Return the time that the task of each request takes; NaN where not all of it finished."""
    numbers, count = _numbers(tasks)
    begins_s, ends_s = np.full(count + 1, np.inf), np.zeros(count + 1)
    begins_s[-1], ends_s[-1] = 0.0, np.inf
    finished = np.asarray(requests["status"] == "finished")
    np.fmin.at(begins_s, numbers, requests["scheduled_s"])
    np.fmax.at(ends_s, numbers, np.where(finished, requests["last_token_s"], np.inf))
    times_s = (ends_s - begins_s)[numbers]
    return np.where(np.isfinite(times_s), times_s, np.nan)


def task_of(requests: Frame, row: int | None = None) -> "Frame | None":
    """Return the requests of the task of a row, else of the slowest task.

    None where there is none, or it has but one request.
    """
    if "session" not in requests:
        return None
    timed = requests.dropna(subset="task_s").sort_values("task_s", kind="stable")
    if row is None and timed.empty:
        return None
    name = timed["task"].iloc[-1] if row is None else requests["task"].iloc[row]
    task = requests[requests["task"] == name]
    return task if len(task) > 1 else None


def task_figures(table: Table) -> dict[str, Any]:
    """Return ``task_s`` and ``tasks`` of a summary; nothing where the run has none.

    A task takes from its first request to the last token of its last one, sub-agents in the
    background included. It has no time where a request of it was not answered. Tasks with a
    request in the warm-up are left out.
    """
    if "task" not in table:
        return {}
    requests = columns_of(table)
    if "warm_up" in requests:
        warm = requests["task"][requests["warm_up"].astype(bool)]
        warmed = {task for task in warm if isinstance(task, str)}
        kept = np.array([task not in warmed for task in requests["task"]], bool)
        requests = measured(rows_of(requests, kept))
    numbers, count = _numbers(requests["task"])
    in_task, numbers = rows_of(requests, numbers >= 0), numbers[numbers >= 0]
    times_s = np.full(count, np.nan)
    times_s[numbers] = in_task["task_s"]
    tokens = in_task["prompt_tokens"] + in_task["output_tokens"]
    begin_s, end_s = (np.asarray(requests[n], float) for n in ("scheduled_s", "last_token_s"))
    span_s = float(np.nanmax(end_s, initial=-np.inf) - np.nanmin(begin_s, initial=np.inf))
    finished = int(np.isfinite(times_s).sum())
    figures = {
        "total": count,
        "finished": finished,
        "turns": describe(np.bincount(numbers, minlength=count)),
        "tokens": describe(np.bincount(numbers, tokens, minlength=count)),
        "per_hour": ratio(3600 * finished, span_s),
        "by_turn": list(_by_turn(rows_of(requests, requests["status"] == "finished"))),
    }
    return {"task_s": describe(times_s), "tasks": figures}


def _by_turn(requests: Columns) -> Iterable[dict[str, Any]]:
    """Yield TTFT and prefix hits of the turns of sessions, a few turns together."""
    for first, end in pairwise((*FIRST_TURNS, np.inf)):
        rows = rows_of(requests, (requests["turn"] >= first) & (requests["turn"] < end))
        if not len(rows["turn"]):
            continue
        yield {
            "from_turn": first,
            "requests": len(rows["turn"]),
            "ttft_s": describe(rows["ttft_s"]),
            "prefix_hit_rate_tokens": _hit_rate(rows, "cached_tokens"),
            "endless_hit_rate_tokens": _hit_rate(rows, "endless_cached_tokens"),
        }


def _hit_rate(requests: Columns, column: str) -> float | None:
    """Return the share of the prompt tokens that a cache had; None where that is not known."""
    if column not in requests:
        return None
    return ratio(float(np.nansum(requests[column])), float(requests["prompt_tokens"].sum()))
