"""Tasks of agents in a run: their times, and the first tokens of their turns."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from servetwin.sim.records.metrics import describe, measured, ratio
from servetwin.workloads.graphs.lanes import LaneSource
from servetwin.workloads.graphs.task_graph import TaskGraph
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import endless_hits

if TYPE_CHECKING:
    import pandas as pd

FIRST_TURNS = (0, 1, 2, 5, 10, 20, 50)
"""The first turn of each row of figures by turn."""
_USER = "user-"


def with_tasks(
    frame: "pd.DataFrame", requests: Sequence[Request], source: TaskGraph[Any] | LaneSource[Any],
    *, cached_answers: bool = True,
) -> "pd.DataFrame":  # fmt: skip
    """Return the requests of a run with the columns of tasks, and of lanes where these sent them.

    A task is all that waits for each other (``workloads.graphs``); the requests of a user are none.
    ``requests`` are in the order of sending; with ``cached_answers`` later prompts find the answers
    that they repeat in the cache.
    """
    import pandas as pd

    if any((request.tenant or "").startswith(_USER) for request in requests):
        return frame
    names = frame["request_id"].tolist()
    turns = {request.request_id: request.turn for request in requests}
    parents = {request.request_id: list(request.parent_ids) for request in requests}
    sessions = {request.request_id: request.session_id or "" for request in requests}
    hits = endless_hits(requests, cached_answers=cached_answers)
    endless = dict(zip(turns, hits, strict=True))
    frame = frame.assign(
        task=pd.Series(map(source.task_of, names), frame.index, object),
        turn=pd.Series(map(turns.get, names), frame.index, float),
        session=frame["request_id"].map(sessions),
        parents=frame["request_id"].map(parents),
        endless_cached_tokens=[endless.get(name, 0) for name in names],
    )
    if isinstance(source, LaneSource):
        lanes = [source.sent[name][0].lane for name in names]
        frame = frame.assign(warm_up=[name in source.warm_up for name in names], lane=lanes)
    numbers, _ = pd.factorize(frame["task"])
    last_s, first_s = frame["last_token_s"].groupby(numbers), frame["scheduled_s"].groupby(numbers)
    finished = (frame["status"] == "finished").groupby(numbers).transform("all")
    times_s = last_s.transform("max") - first_s.transform("min")
    return frame.assign(task_s=times_s.where(finished & (numbers >= 0)))


def task_of(requests: "pd.DataFrame", row: int | None = None) -> "pd.DataFrame | None":
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


def task_figures(requests: "pd.DataFrame") -> dict[str, Any]:
    """Return ``task_s`` and ``tasks`` of a summary; nothing where the run has none.

    A task takes from its first request to the last token of its last one, sub-agents in the
    background included. It has no time where a request of it was not answered. Tasks with a
    request in the warm-up are left out.
    """
    if "task" not in requests:
        return {}
    if "warm_up" in requests:
        warmed = requests["task"][requests["warm_up"].astype(bool)].dropna()
        requests = measured(requests[~requests["task"].isin(warmed)])
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


def _by_turn(requests: "pd.DataFrame") -> Iterable[dict[str, Any]]:
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
            "prefix_hit_rate_tokens": _hit_rate(rows, "cached_tokens"),
            "endless_hit_rate_tokens": _hit_rate(rows, "endless_cached_tokens"),
        }


def _hit_rate(requests: "pd.DataFrame", column: str) -> float | None:
    """Return the share of the prompt tokens that a cache had; None where that is not known."""
    if column not in requests:
        return None
    return ratio(float(requests[column].sum()), float(requests["prompt_tokens"].sum()))
