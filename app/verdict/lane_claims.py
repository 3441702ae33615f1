"""What lanes claim beside latencies: the same turns in the same order, equal hits, task times.

How many requests lanes send is a result. Compared are those answered on both sides, and the tasks
that both replayed whole.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Self

import pandas as pd

from servetwin.app.verdict.claims import MetricComparison, compare_pairs
from servetwin.app.verdict.intervals import variance_within
from servetwin.app.verdict.measured_facts import MeasuredFacts
from servetwin.sim.records.metrics import describe
from servetwin.sim.records.run import Run
from servetwin.sim.records.tasks import FIRST_TURNS
from servetwin.workloads.request import Request

TASK = "task_s.mean"
TASK_LIMIT = 0.10
NO_TASK = "no task was replayed whole on both sides; give --lanes a longer duration"
_SENT = ["request_id", "prompt_tokens", "output_tokens"]


@dataclass(frozen=True, slots=True)
class LaneClaims:
    """Lanes simulated at the measured step times, beside the same lanes driven live.

    Both sides answered ``requests``: ``moved`` of them at another place in their session or with
    other lengths, ``early`` before a parent had ended, ``equal`` with as many tokens from the cache
    (``by_turn`` has the means). ``tasks`` are whole on both sides.
    """

    task: MetricComparison
    tasks: int
    requests: int
    moved: int
    early: int
    equal: int
    by_turn: Sequence[Mapping[Hashable, float]]

    @classmethod
    def of(cls, tests: Sequence[MeasuredFacts], predicted: Run, limit: float | None) -> Self:
        """Compare load tests with a simulation of the lanes; ``limit`` is on the task time."""
        pairs = [_common(predicted.requests, one.run.requests) for one in tests]
        whole = [_whole_tasks(*both) for both in pairs]
        means_s = [[describe(side["task_s"])["mean"] for side in both] for both in whole]
        variances = [variance_within(TASK, *both) for both in whole]
        moved = early = 0
        for test, (ours, theirs) in zip(tests, pairs, strict=True):
            sent = (_in_order(rows, test.requests) for rows in (ours, theirs))
            moved += sum(one != other for one, other in zip(*sent, strict=True))
            early += _early(test.run.requests, test.requests)
        cached = pd.concat(
            ours.assign(measured=theirs["cached_tokens"]) for ours, theirs in pairs
        ).rename(columns={"cached_tokens": "predicted"})
        turns = pd.cut(cached["turn"], [*FIRST_TURNS, inf], right=False, labels=FIRST_TURNS)
        groups = cached.groupby(turns.rename("from_turn"), observed=True)
        by_turn = groups[["predicted", "measured"]].mean()
        by_turn.insert(0, "requests", groups.size())
        return cls(
            compare_pairs(TASK, means_s, variances, limit),
            sum(len(tasks) for tasks, _ in whole),
            len(cached),
            moved,
            early,
            int((cached["predicted"] == cached["measured"]).sum()),
            by_turn.reset_index().astype(float).to_dict("records"),
        )


def _common(*sides: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of the requests that all sides answered, by their ids."""
    finished = [
        rows[rows["status"] == "finished"].set_index("request_id", drop=False) for rows in sides
    ]
    both = finished[0].index.intersection(finished[1].index)
    return [rows.loc[both] for rows in finished]


def _whole_tasks(*sides: pd.DataFrame) -> list[pd.DataFrame]:
    """Return a row for each task that is whole on all sides, named by the task."""
    tasks = [rows.dropna(subset=["task_s"]).drop_duplicates("task") for rows in sides]
    return _common(*(rows.assign(request_id=rows["task"]) for rows in tasks))


def _in_order(rows: pd.DataFrame, requests: Iterable[Request]) -> Iterator[tuple[Any, ...]]:
    """Return ids and lengths of what was sent, session by session, in the order of sending."""
    sessions = {one.request_id: one.session_id or "" for one in requests}
    named = rows.assign(session=rows["request_id"].map(sessions))
    sent = named.sort_values(["session", "scheduled_s"], kind="stable")[_SENT]
    return iter(sent.itertuples(index=False, name=None))


def _early(rows: pd.DataFrame, requests: Iterable[Request]) -> int:
    """Return how many requests were sent before a parent had ended; warm-up turns wait for none."""
    rows = rows[~rows["warm_up"].astype(bool)].set_index("request_id")
    sent_s, ended_s = rows["scheduled_s"].to_dict(), rows["last_token_s"].to_dict()
    return sum(
        any(ended_s.get(parent, 0.0) > sent_s[one.request_id] for parent in one.parent_ids)
        for one in requests
        if one.request_id in sent_s
    )
