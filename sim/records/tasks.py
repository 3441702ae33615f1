"""Tasks of agents in a run: their times, and the first tokens of their turns."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pandas as pd

from servetwin.sim.records.metrics import describe, ratio
from servetwin.workloads.graphs.links import tasks
from servetwin.workloads.graphs.task_graph import waits
from servetwin.workloads.request import Request

FIRST_TURNS = (0, 1, 2, 5, 10, 20, 50)
"""The first turn of each row of figures by turn."""
_USER = "user-"


def with_tasks(frame: pd.DataFrame, requests: Iterable[Request]) -> pd.DataFrame:
    """Return the requests of a run with the columns of tasks, where some of them wait for others.

    A task is all that waits for each other (``workloads.graphs``); the requests of a user are none.
    """
    requests = list(requests)
    links = waits(requests)
    if not any(links.values()) or any((r.tenant or "").startswith(_USER) for r in requests):
        return frame
    turns = {request.request_id: request.turn for request in requests}
    names = frame["request_id"]
    frame = frame.assign(task=names.map(tasks(links)), turn=names.map(turns).astype(float))
    by_task = frame.groupby("task", sort=False)
    times_s = by_task["last_token_s"].transform("max") - by_task["scheduled_s"].transform("min")
    unfinished = (frame["status"] != "finished").groupby(frame["task"]).transform("any")
    return frame.assign(task_s=times_s.mask(unfinished))


def task_figures(requests: pd.DataFrame) -> dict[str, Any]:
    """Return ``task_s`` and ``tasks`` of a summary; nothing where the run has none.

    A task takes from its first request to the last token of its last one, sub-agents in the
    background included. It has no time where a request of it was not answered. Tasks with a
    request in the warm-up are left out.
    """
    if "task" not in requests:
        return {}
    if "warm_up" in requests:
        requests = requests[~requests["warm_up"].groupby(requests["task"]).transform("any")]
    by_task = requests.groupby("task", sort=False)
    times_s = by_task["task_s"].max()
    tokens = by_task["prompt_tokens"].sum() + by_task["output_tokens"].sum()
    span_s = requests["last_token_s"].max() - requests["scheduled_s"].min()
    finished = int(times_s.notna().sum())
    figures = {
        "total": len(times_s),
        "finished": finished,
        "turns": describe(by_task.size()),
        "tokens": describe(tokens),
        "per_hour": ratio(3600 * finished, span_s),
        "by_turn": list(_by_turn(requests[requests["status"] == "finished"])),
    }
    return {"task_s": describe(times_s), "tasks": figures}


def _by_turn(requests: pd.DataFrame) -> Iterable[dict[str, Any]]:
    """Yield TTFT and prefix hits of the turns of sessions, a few turns together."""
    numbered = requests[requests["turn"].notna()]
    for first, end in pairwise((*FIRST_TURNS, float("inf"))):
        rows = numbered[numbered["turn"].between(first, end, "left")]
        if rows.empty:
            continue
        yield {
            "from_turn": first,
            "requests": len(rows),
            "ttft_s": describe(rows["ttft_s"]),
            "prefix_hit_rate_tokens": ratio(
                float(rows["cached_tokens"].sum()), float(rows["prompt_tokens"].sum())
            ),
        }
