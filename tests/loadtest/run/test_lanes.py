"""Lanes: the rules of AgentX, each kept by the simulator and by the load tester."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servetwin.app.reports.load_test import render_report
from servetwin.app.reports.tables import lane_lines
from servetwin.app.scenario.options.distributions import lanes_of
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.report.load_notes import prompt_cache
from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import Refusal
from servetwin.policies.registry import MEMORIES
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.records.metrics import SLO, duration
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.errors import LoadTestError, TraceError
from servetwin.workloads.graphs.lane_rules import LaneRules
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.loadtest_server import Reply, ScriptedServer, stream_of

CONTEXT = 4096  # of the scripted server, and what the memory of the simulated one holds
FAILING: dict[str, Any] = {"output_tokens": 7}  # fits the context, and gets an error
IDLE_S = 0.02
RULES = LaneRules(2, idle_s=IDLE_S, first_from=0.4, first_to=0.6, duration_s=0.7)
Side = Callable[[Trace], Run]


class Moody(ContinuousBatching):
    """Refuses the requests that are to fail."""

    def add(self, seq: Sequence) -> Refusal | None:
        if seq.max_tokens == FAILING["output_tokens"]:
            return Refusal("queue_full", "it is to fail")
        return super().add(seq)


def simulated(trace: Trace) -> Run:
    """A server of 5 ms steps whose memory is shorter than the context of its model."""
    policies = PolicyConfig(max_model_len=2 * CONTEXT, kv_tokens=CONTEXT, prefix_cache=True)
    pool = Pool(policies, LinearStepTime.of({"constant": 0.005}))
    memory = MEMORIES.build(policies.kv, policies)
    return simulate_cluster(trace, [pool], build=lambda config: Moody(memory, config))


def live(trace: Trace, **options: Any) -> Run:
    def script(body: Mapping[str, Any]) -> Reply:
        too_long = len(body["prompt"]) + body["max_tokens"] > CONTEXT
        fails = too_long or body["max_tokens"] == FAILING["output_tokens"]
        return Reply(status=400) if fails else stream_of(body["max_tokens"], 0.005)

    with ScriptedServer(script).running() as server:
        run = run_load_test(probe(server.url), trace, options=LoadOptions(**options))
    bodies = [(len(a.body["prompt"]), a.body["max_tokens"]) for a in server.arrivals]
    run.extra["bodies"] = Counter(bodies)
    return run


SIDES: dict[str, Side] = {"simulated": simulated, "live": live}


def turn(session: str, number: int, at_s: float, *parents: str, **more: Any) -> Request:
    """Prompts of a task grow by blocks of two tokens; all begin with the block of their task."""
    task = session.partition("/")[0]
    base = 1000 * int(task[1:])
    own = 100 * sum(map(ord, session.partition("/")[2]))
    blocks = (base, *(base + own + each for each in range(1, number + 2)))
    fields = {"prompt_tokens": 2 * len(blocks), "output_tokens": 2, "delay_s": 0.01, **more}
    if not parents:
        fields["delay_s"] = None
    return Request(
        f"{session}.{number}",
        at_s,
        prefix_block_ids=blocks,
        block_tokens=2,
        session_id=session,
        parent_ids=parents,
        turn=number,
        **fields,
    )


def task(name: str, start_s: float = 0.0) -> Iterator[Request]:
    """A session whose turn 2 waits for a sub-agent of two turns; another runs in the background."""
    yield turn(name, 0, start_s)
    yield turn(name, 1, start_s + 10, f"{name}.0", delay_s=300.0)
    yield turn(f"{name}/b", 0, start_s + 20, f"{name}.1")
    yield turn(f"{name}/b", 1, start_s + 30, f"{name}/b.0")
    yield turn(f"{name}/z", 0, start_s + 40, f"{name}.1", output_tokens=9)
    yield turn(name, 2, start_s + 50, f"{name}.1", f"{name}/b.1")
    yield turn(name, 3, start_s + 60, f"{name}.2")


def trace_of(*tasks: Iterator[Request], rules: LaneRules = RULES) -> Trace:
    requests = sorted((r for each in tasks for r in each), key=lambda r: r.arrival_s)
    return Trace(tuple(requests), "made", lanes=rules)


TRACE = trace_of(task("t0"), task("t1", 5.0), task("t2", 9.0))
_RUNS: dict[str, Run] = {}


def drained(side: Side, trace: Trace, trees: int) -> Run:
    """A run in which so many trees have drained: on a busy machine it takes longer."""
    assert trace.lanes
    for longer in (1, 5, 25, 100):
        duration_s = longer * trace.lanes.duration_s
        run = side(replace(trace, lanes=replace(trace.lanes, duration_s=duration_s)))
        if run.extra["lanes"]["drained"] >= trees:
            break
    return run


def run_of(name: str) -> Run:
    """The run of ``TRACE`` on a side, made once."""
    if name not in _RUNS:
        _RUNS[name] = drained(SIDES[name], TRACE, 6)
    return _RUNS[name]


@pytest.fixture(params=list(SIDES))
def run(request: pytest.FixtureRequest) -> Run:
    return run_of(request.param)


@pytest.fixture(params=list(SIDES))
def side(request: pytest.FixtureRequest) -> Side:
    return SIDES[request.param]


def rows_of(run: Run) -> pd.DataFrame:
    """The requests by name, with the replay that each is of."""
    rows = run.requests.assign(
        replay=run.requests["request_id"].map(lambda n: int(n.partition("+")[2] or 0)),
        name=run.requests["request_id"].map(lambda n: n.partition("+")[0]),
    )
    return rows.set_index("request_id")


BY_NAME = {request.request_id: request for request in TRACE}


def alive(rows: pd.DataFrame) -> pd.DataFrame:
    """When each replay was at work: from its first request to its last token."""
    return rows.groupby("replay").agg(
        lane=("lane", "first"), begun_s=("scheduled_s", "min"), over_s=("last_token_s", "max")
    )


def test_a_lane_runs_one_tree_until_it_has_drained_the_background_included(run: Run) -> None:
    rows = rows_of(run)
    for _, replays in alive(rows).groupby("lane"):
        assert (replays["begun_s"].to_numpy()[1:] >= replays["over_s"].to_numpy()[:-1]).all()
    assert {*rows["lane"]} == {0, 1}
    assert run.extra["lanes"]["drained"] >= 4
    assert (rows["lane"] == rows["replay"] % RULES.lanes).all()


def test_more_requests_than_lanes_are_in_flight_during_a_fan_out(run: Run) -> None:
    rows = rows_of(run)
    for _, one in rows[~rows["warm_up"]].groupby("lane"):
        edges = [*((s, 1) for s in one["scheduled_s"]), *((e, -1) for e in one["last_token_s"])]
        assert np.cumsum([step for _, step in sorted(edges)]).max() == 2


def test_gaps_are_from_end_to_start_and_idle_ones_are_cut(run: Run) -> None:
    rows = rows_of(run)
    gaps_s: dict[str, list[float]] = {}
    for row in rows[~rows["warm_up"]].to_dict("records"):
        parents = rows[(rows["replay"] == row["replay"]) & ~rows["warm_up"]].set_index("name")
        name = row["name"]
        names = [each for each in BY_NAME[name].parent_ids if each in parents.index]
        if names:
            gap_s = row["scheduled_s"] - parents["last_token_s"][names].max()
            gaps_s.setdefault(name[3:], []).append(gap_s)
            assert gap_s >= min(BY_NAME[name].delay_s or 0.0, IDLE_S) - 1e-9
    assert min(gaps_s["1"]) < 100.0, "the gap of 300 s was not cut"


def test_a_join_waits_for_its_sub_agent(run: Run) -> None:
    rows = rows_of(run)
    for _, one in rows[~rows["warm_up"]].groupby("replay"):
        ends_s = one.set_index("name")["last_token_s"]
        for name, at_s in one.set_index("name")["scheduled_s"].items():
            task = str(name).partition(".")[0]
            if name == f"{task}.2" and f"{task}/b.1" in ends_s.index:
                assert at_s >= ends_s[f"{task}/b.1"]


def test_each_session_that_goes_on_has_one_warm_up_turn_the_last_before_its_start(run: Run) -> None:
    rows = rows_of(run)
    first = rows[rows["replay"] < RULES.lanes]
    for _, one in first.groupby("replay"):
        session = one["name"].map(lambda name: BY_NAME[name].session_id)
        turns = one["name"].map(lambda name: BY_NAME[name].turn)
        assert one["warm_up"].any()
        for _, of_session in turns.groupby(session):
            warm = of_session[one["warm_up"][of_session.index]]
            later = of_session[~one["warm_up"][of_session.index]]
            assert len(warm) <= 1
            assert len(later), "the warm-up turn of a session that does not go on"
            assert not len(warm) or warm.iloc[0] == later.min() - 1
    assert not rows["warm_up"][rows["replay"] >= RULES.lanes].any()


def test_the_measured_phase_of_all_lanes_begins_when_the_last_warm_up_turn_has_ended(
    run: Run,
) -> None:
    rows, begun_s = rows_of(run), run.extra["lanes"]["measured_from_s"]
    warm = rows[rows["warm_up"]]
    assert (warm["scheduled_s"] == 0.0).all()
    assert begun_s >= warm["last_token_s"].max() - 1e-9
    starts_s = rows[~rows["warm_up"]].groupby("lane")["scheduled_s"].min()
    assert (starts_s >= begun_s).all()
    assert (starts_s <= begun_s + IDLE_S + 1e-9).all()


def test_recycled_lanes_begin_at_turn_0_and_are_measured(run: Run) -> None:
    rows = rows_of(run)
    later = rows[rows["replay"] >= RULES.lanes]
    firsts = later.sort_values("scheduled_s").groupby("replay")["name"].first()
    assert len(firsts)
    assert {BY_NAME[name].turn for name in firsts} == {0}


def test_prompts_and_answers_have_the_recorded_lengths(run: Run) -> None:
    rows = rows_of(run)
    wanted = rows["name"].map(lambda name: BY_NAME[name].output_tokens)
    assert (rows["status"] == "finished").all()
    assert (rows["output_tokens"] == wanted).all()
    if bodies := run.extra.get("bodies"):
        lengths = [(BY_NAME[n].prompt_tokens, BY_NAME[n].output_tokens) for n in rows["name"]]
        assert bodies == Counter(lengths)


def test_replays_share_no_prefix_and_the_turns_of_a_tree_do(run: Run) -> None:
    rows = rows_of(run)
    endless = rows["endless_cached_tokens"]
    for _, one in rows.groupby("replay"):
        hits = endless[one.index].tolist()
        assert hits[0] == 0
        assert min(hits[1:], default=2) >= 2
    if run.kind == "simulation":
        assert (rows["cached_tokens"] <= endless).all()


def test_nothing_is_sent_after_the_measured_phase(run: Run) -> None:
    rows, begun_s = rows_of(run), run.extra["lanes"]["measured_from_s"]
    assert rows["scheduled_s"].max() < begun_s + run.extra["lanes"]["duration_s"]


def test_a_task_is_one_that_ran_from_its_first_turn_to_its_last(run: Run) -> None:
    summary, rows = run.summary(SLO(task_s=9.0)), rows_of(run)
    whole = rows.groupby("replay").size() == 7
    assert summary["tasks"]["total"] == rows["task"].nunique()
    assert 1 <= summary["tasks"]["total"] <= whole[whole.index >= RULES.lanes].sum()
    assert summary["slo_attainment"] == 1.0
    assert summary["requests"]["total"] == (~rows["warm_up"]).sum()


def test_both_sides_send_the_same_turns_after_the_same_others_byte_for_byte() -> None:
    lines = {}
    for name in SIDES:
        rows = rows_of(run_of(name))
        warm = {*rows.index[rows["warm_up"]]}
        sizes = rows.groupby("replay").size()
        lines[name] = {
            replay: "\n".join(
                sorted(
                    f"{row.lane} {row.Index} {BY_NAME[row.name].parent_ids} "
                    f"{BY_NAME[row.name].prompt_tokens} {row.output_tokens} {row.Index in warm}"
                    for row in rows[rows["replay"] == replay].itertuples()
                )
            ).encode()
            for replay in sizes.index
            if replay < RULES.lanes or sizes[replay] == 7
        }
    both = lines["simulated"].keys() & lines["live"].keys()
    assert len(both) >= 4
    assert [lines["simulated"][n] for n in both] == [lines["live"][n] for n in both]


def test_a_session_that_outgrows_the_context_ends_and_is_counted(side: Side) -> None:
    long = {"t0.2": CONTEXT, "t0/b.1": 1}
    requests = [
        replace(r, prompt_tokens=long.get(r.request_id, r.prompt_tokens)) for r in task("t0")
    ]
    rules = replace(RULES, lanes=1, first_from=0.0, first_to=0.0, scenario="agentx")
    run = drained(side, trace_of(iter(requests), rules=rules), 2)
    rows, lanes = rows_of(run), run.extra["lanes"]
    assert "t0.3" not in {*rows["name"]}
    assert {*rows.loc[rows["name"] == "t0.2", "status"]} <= {"failed", "refused"}
    assert {"t0/b.1", "t0/z.0"} < {*rows["name"]}
    assert lanes["overflowed"] >= 2
    assert lanes["drained"] >= 2
    assert any("sessions outgrew the context: more than 1 %" in rule for rule in lanes["broken"])
    assert any("shorter than 900 s" in rule for rule in lanes["broken"])


@pytest.mark.parametrize("name", ["t0.1", "t0/b.1"])
def test_other_errors_end_no_session_and_release_the_join(side: Side, name: str) -> None:
    requests = (replace(r, **FAILING) if r.request_id == name else r for r in task("t0"))
    rules = replace(RULES, lanes=1, first_from=0.0, first_to=0.0, duration_s=0.5)
    rows = rows_of(drained(side, trace_of(requests, rules=rules), 2))
    assert {*rows.loc[rows["name"] == name, "status"]} <= {"failed", "refused"}
    assert {*rows["name"]} == {*(r.request_id for r in task("t0"))}
    assert rows["replay"].max() >= 1


def test_a_root_that_fails_in_warm_up_ends_the_run(side: Side) -> None:
    rules = replace(RULES, lanes=1, scenario="agentx", first_from=0.9, first_to=0.95)
    requests = (replace(r, **FAILING) if r.request_id == "t0.2" else r for r in task("t0"))
    run = side(trace_of(requests, rules=rules))
    assert run.requests["warm_up"].all()
    assert run.extra["lanes"]["measured_from_s"] is None
    why = "the root session of 't0.2' failed in warm-up"
    assert why in run.extra["lanes"]["broken"]
    assert f"ended early: {why}" in lane_lines(run.extra["lanes"])


def test_a_session_of_one_turn_begins_cold(side: Side) -> None:
    run = side(trace_of(iter([turn("t0", 0, 0.0)]), rules=replace(RULES, duration_s=0.1)))
    lanes = run.extra["lanes"]
    assert (lanes["cold_lanes"], lanes["warm_up_turns"], lanes["measured_from_s"]) == (2, 0, 0.0)
    assert not run.requests["warm_up"].any()


def test_more_lanes_than_traces_replay_some_twice_with_prompts_of_their_own(side: Side) -> None:
    rules = replace(RULES, lanes=3, first_from=0.0, first_to=0.0, duration_s=0.1)
    rows = rows_of(side(trace_of(task("t0"), rules=rules)))
    assert {0, 1, 2} <= {*rows["replay"]}
    firsts = rows[rows["name"] == "t0.0"]
    assert (firsts["endless_cached_tokens"] == 0).all()


def test_the_report_says_what_the_lanes_did(run: Run) -> None:
    text = " ".join("\n".join(lane_lines(run.summary()["lanes"])).split())
    begun_s, replays = (run.extra["lanes"][key] for key in ("measured_from_s", "replays"))
    assert text.startswith(f"2 lanes: {replays} replays, ")
    assert f" s began after {duration(begun_s)}" in text
    if run.kind == "loadtest":
        run.extra["prompt_cache"] = prompt_cache(run.requests, TRACE)
        assert "requests of made in 2 lanes; openai completions" in " ".join(
            render_report(run).split()
        )


def test_several_processes_are_refused() -> None:
    with pytest.raises(LoadTestError, match="one process sends all lanes"):
        live(TRACE, processes=2)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("many", "'many' is no number of lanes"),
        ("0", "--lanes 0: must be 1 or more"),
        ("4:idel=3", "unknown setting 'idel'; did you mean 'idle'"),
        ("4:idle=soon", "idle: 'soon' is not a number"),
        ("4:from=0.8,to=0.2", "shares are 0 <= from <= to <= 1"),
        ("4:duration=0", "duration above 0 s"),
        ("4:duration=1e12", r"duration above 0 s and at most 604,800 s \(a week\)"),
        ("4:agentx,idle=3", "--lanes agentx: unknown setting 'idle'"),
    ],
)
def test_lanes_that_cannot_be_are_refused_in_a_line(text: str, line: str) -> None:
    with pytest.raises(TraceError, match=line):
        lanes_of(text, 0)


def test_the_rules_of_agentx() -> None:
    rules = lanes_of("8:agentx", 3)
    assert rules == LaneRules(8, 10.0, 0.0, 1.0, 1800.0, 3, "agentx")
    assert lanes_of("8:agentx,duration=900", 0).broken(100, 1, None) == []
    assert lanes_of("8", 0).broken(10, 9, "gone") == []


def test_a_request_that_waits_for_itself_is_named(side: Side) -> None:
    circle = [turn("t0", 0, 0.0, "t0.1"), turn("t0", 1, 1.0, "t0.0")]
    with pytest.raises(TraceError, match=r"waits for itself \(t0.0 -> t0.1 -> t0.0\)"):
        side(trace_of(iter(circle), rules=replace(RULES, first_from=0.0, first_to=0.0)))


def test_a_parent_that_is_not_in_the_trace_is_not_waited_for(side: Side) -> None:
    lonely = [turn("t0", 0, 0.0), turn("t0", 1, 1.0, "t0.0", "unknown")]
    rules = replace(RULES, lanes=1, first_from=0.0, first_to=0.0, duration_s=0.2)
    rows = rows_of(drained(side, trace_of(iter(lonely), rules=rules), 1))
    assert {*rows["name"]} == {"t0.0", "t0.1"}
