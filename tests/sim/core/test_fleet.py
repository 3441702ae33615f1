"""Replicas that fail, restart, slow down, are started and drained: exact, and nothing is lost."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.policies.queues.quotas import parse_quotas
from servetwin.policies.registry import ROUTERS
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.autoscaling import parse_rule
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.faults import parse_faults, require_survivors
from servetwin.sim.core.fleet.gateway import FleetPlan
from servetwin.sim.core.pools import Pool
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import ApiLatency
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace, as_columns
from tests.sim.core.test_cluster import NOISE, ONE_SECOND, SMALL, Checked
from tests.support.checked import CheckedScheduler, request
from tests.support.effort import examples
from tests.support.random_runs import STEP_TIME, every_scheduler, policies, workloads

RULES = (
    "utilisation:target=0.5",
    "queue:target=0.5,tolerance=0",
    "kv:target=0.3",
    "slo:target=0.9,ttft_ms=50",
    "schedule:steps=1/3@0.3/2@1.1",
)
MOST = 4


@st.composite
def fault_plans(draw: st.DrawFn) -> str:
    """Faults of up to four replicas, one after the other on each."""
    faults = []
    for replica in range(MOST):
        at_s = 0.0
        for _ in range(draw(st.integers(0, 2))):
            at_s += draw(st.sampled_from([0.0, 0.003, 0.0101, 0.05, 0.31]))
            for_s = draw(st.sampled_from([0.002, 0.0307, 0.2, 1.5]))
            kinds = ["crash:", "partition:", "partition:", "slow:factor=3,", "slow:factor=1.5,"]
            kind = draw(st.sampled_from(kinds))
            faults.append(f"{kind}replica={replica},at_s={at_s},for_s={for_s}")
            at_s += for_s + 0.0005
    return " ".join(faults)


@st.composite
def fleets(draw: st.DrawFn) -> FleetPlan:
    """Any faults, with or without a rule that looks often."""
    faults = parse_faults(draw(fault_plans()))
    detection_s, retries = draw(st.sampled_from([0.0, 0.02, 0.4])), draw(st.integers(0, 2))
    rule = draw(st.sampled_from([None, *RULES]))
    gateway = (
        draw(st.sampled_from([inf, inf, 0.0101, 0.0503, 0.4, 3.0])),
        draw(st.sampled_from([inf, 0.0, 0.0101, 0.0307, 0.2])),
        draw(st.sampled_from([{}, {"a": (40.0, 60.0), "*": (900.0, 90.0)}])),
    )
    if rule is None:
        return FleetPlan(MOST, faults, None, detection_s, retries, *gateway)
    least = draw(st.integers(1, 2))
    bounds = f"min={least},max={MOST},interval_s=0.0503,stabilisation_s=0.1,warm_up_s=0.03"
    parsed = parse_rule(f"{rule},{bounds}")
    replicas = draw(st.integers(least, MOST))
    return FleetPlan(replicas, faults, parsed, detection_s, retries, *gateway)


def run(requests: Iterable[Request], config: PolicyConfig, fleet: FleetPlan, **options: Any) -> Run:
    """Simulate a fleet of at most four replicas, all invariants checked."""
    options = {"build": CheckedScheduler, "closed_loop": False, **options}
    pools = [Pool(config, STEP_TIME, MOST, noise=options.pop("noise", None))]
    return simulate_cluster(requests, pools, fleet=fleet, **options)


def story(of: Run) -> tuple[object, ...]:
    """Return what became of each request, and of the fleet."""
    return of.requests.to_csv(), of.extra.get("fleet"), int(of.steps["steps"].sum())


@every_scheduler
@settings(max_examples=examples(30))
@given(data=st.data(), requests=workloads(), fleet=fleets(), closed_loop=st.booleans())
def test_every_request_ends_once_and_macro_steps_change_nothing(
    batching: str, data: st.DataObject, requests: list[Request], fleet: FleetPlan, closed_loop: bool
) -> None:
    config = data.draw(policies(batching))
    router = RouterConfig(
        data.draw(st.sampled_from(list(ROUTERS))), data.draw(st.sampled_from([0.0, 0.02]))
    )
    runs = []
    for macro in (True, False):
        checked = Checked()
        of = run(
            requests,
            config,
            fleet,
            router=router,
            macro=macro,
            build=checked,
            closed_loop=closed_loop,
        )
        runs.append(story(of))
        rows, figures = of.requests, of.extra["fleet"]
        assert len(rows) == len(requests)
        if not closed_loop:
            assert set(rows["status"]) <= {"finished", "refused", "failed"}
        finished = rows[rows["status"] == "finished"]
        assert (finished["first_token_s"] <= finished["last_token_s"]).all()
        assert (finished["queue_s"] >= 0).all()
        assert (finished["e2e_s"] <= fleet.timeout_s + 1e-9).all()
        failed = (rows["status"] == "failed").sum() - figures["timed_out"]
        assert figures["lost"] == figures["retried"] + failed
        if not (figures["crashes"] or (figures["partitions"] and fleet.rule)):
            checked.check_empty()
        assert figures["replica_hours"] == pytest.approx(sum(figures["hours_by_replica"]))
    for one, other in zip(*runs, strict=True):
        assert one == other


@settings(max_examples=examples(20))
@given(
    requests=workloads(),
    batching=st.sampled_from(["static", "continuous", "unified"]),
    rule=st.sampled_from([None, *RULES]),
    api=st.sampled_from([None, ApiLatency(0.003, 0.0001, 0.002, 0.0001)]),
    keep_usage=st.booleans(),
)
def test_a_fleet_of_one_to_which_nothing_happens_is_a_single_server(
    requests: list[Request],
    batching: str,
    rule: str | None,
    api: ApiLatency | None,
    keep_usage: bool,
) -> None:
    config = SMALL.changed(batching=batching, prefix_cache=batching != "static")
    recorder = Recorder(api, keep_usage=keep_usage)
    alone = simulate(requests, CheckedScheduler(config), STEP_TIME, recorder=recorder)
    parsed = None if rule is None else parse_rule(f"{rule},max=1,interval_s=0.0503")
    quotas = {"*": (1e6, 1e9)}
    fleet = FleetPlan(1, (), parsed, timeout_s=1e6, hedge_s=0.0, quotas=quotas)
    pools, recorder = [Pool(config, STEP_TIME)], Recorder(api, keep_usage=keep_usage)
    one = simulate_cluster(
        requests, pools, recorder=recorder, closed_loop=False, fleet=fleet, build=CheckedScheduler
    )
    assert one.requests.equals(alone.requests)
    assert one.steps.equals(alone.steps)
    assert one.extra["fleet"]["hours_by_replica"] == [one.extra["fleet"]["replica_hours"]]


@settings(max_examples=examples(20))
@given(requests=workloads(), plan=fault_plans(), keep_usage=st.booleans())
def test_noise_and_the_use_of_memory_stay_in_step_with_the_steps(
    requests: list[Request], plan: str, keep_usage: bool
) -> None:
    fleet = FleetPlan(MOST, parse_faults(plan.replace("1.5,", "2,")), None, 0.02, 2)
    runs = []
    for macro in (True, False):
        recorder = Recorder(keep_usage=keep_usage)
        of = run(requests, SMALL, fleet, macro=macro, noise=NOISE, recorder=recorder)
        runs.append(story(of))
        if keep_usage:
            assert (of.steps["free_kv_tokens"] >= of.steps["free_tokens"]).all()
    assert runs[0] == runs[1]


@settings(max_examples=examples(10))
@given(requests=workloads(), plan=fleets())
def test_a_trace_in_columns_stays_in_columns_and_ends_alike(
    requests: list[Request], plan: FleetPlan
) -> None:
    """Two million requests as objects would take a third of the memory that such a day may have."""
    columns, recorder = as_columns(requests), Recorder()
    of_trace = run(Trace(columns, "drawn"), SMALL, plan, recorder=recorder)
    assert recorder.requests is columns
    assert story(of_trace) == story(run(requests, SMALL, plan))


def test_a_crash_loses_what_is_held_and_what_has_no_token_is_sent_again() -> None:
    """Steps of a second, two sequences each; replica 0 crashes at 2.5 s, which is noticed at 4.5 s.

    It held a, which has two tokens and fails, and c, which has none. e comes to it while nobody
    knows. c and e are sent to replica 1 at 4.5 s. Replica 0 is back at 9 s.
    """
    requests = [
        request("a", 0.0, 4, 4),
        request("b", 0.1, 4, 9),
        request("c", 2.0, 4, 2),
        request("d", 3.0, 4, 1),
        request("e", 4.0, 4, 1),
        request("f", 8.0, 4, 1),
        request("g", 9.5, 4, 1),
        request("h", 9.6, 4, 1),
    ]
    config = PolicyConfig(kv_tokens=96, block_tokens=4, max_model_len=70, max_seqs=2)
    fleet = FleetPlan(2, parse_faults("crash:replica=0,at_s=2.5,for_s=6.5"), None, 2.0)
    of = simulate_cluster(requests, [Pool(config, ONE_SECOND, 2)], closed_loop=False, fleet=fleet)
    columns = ["request_id", "status", "replica", "first_token_s", "last_token_s", "error"]
    nan = float("nan")
    expected = [
        ("a", "failed", 0, 1.0, nan, "failed: replica 0 crashed"),
        ("b", "finished", 1, 1.1, 9.1, ""),
        ("c", "finished", 1, 6.1, 7.1, ""),
        ("d", "finished", 1, 4.1, 4.1, ""),
        ("e", "finished", 1, 8.1, 8.1, ""),
        ("f", "finished", 1, 9.1, 9.1, ""),
        ("g", "finished", 1, 10.5, 10.5, ""),
        ("h", "finished", 0, 10.6, 10.6, ""),
    ]
    found = [tuple(row) for row in of.requests[columns].round(9).itertuples(index=False)]
    assert repr(found) == repr(expected)
    figures = of.extra["fleet"]
    assert (figures["crashes"], figures["lost"], figures["retried"]) == (1, 3, 2)
    assert figures["sizes"] == [[0.0, 2], [4.5, 1], [9.0, 2]]


def test_a_client_that_leaves_frees_its_place_at_the_end_of_the_step() -> None:
    """Steps of a second, one sequence at a time, clients that leave after four seconds.

    b leaves while its second step runs, c at the very end of one, d in its first, e while it waits.
    """
    sent = (
        ("a", 0.0, 3),
        ("b", 0.5, 4),
        ("c", 3.0, 3),
        ("d", 3.1, 1),
        ("e", 4.0, 1),
        ("f", 5.5, 1),
    )
    requests = [request(name, at_s, 4, output) for name, at_s, output in sent]
    config = PolicyConfig(kv_tokens=96, block_tokens=4, max_model_len=70, max_seqs=1)
    nan, why = float("nan"), "timeout: no complete answer within 4 s"
    expected = [
        ("a", "finished", 1.0, 3.0, ""),
        ("b", "failed", 4.0, nan, why),
        ("c", "failed", 6.0, nan, why),
        ("d", "failed", nan, nan, why),
        ("e", "failed", nan, nan, why),
        ("f", "finished", 9.0, 9.0, ""),
    ]
    for macro in (True, False):
        checked, fleet = Checked(), FleetPlan(1, timeout_s=4.0)
        pools = [Pool(config, ONE_SECOND)]
        of = simulate_cluster(
            requests, pools, closed_loop=False, macro=macro, build=checked, fleet=fleet
        )
        columns = ["request_id", "status", "first_token_s", "last_token_s", "error"]
        found = [tuple(row) for row in of.requests[columns].itertuples(index=False)]
        assert repr(found) == repr(expected)
        assert of.extra["fleet"]["timed_out"] == 4
        checked.check_empty()


def test_the_copy_with_the_first_token_wins_and_the_other_is_aborted() -> None:
    """Steps of a second, one sequence at a time on two servers; hedges after 1.5 s.

    c is behind a on server 0; its copy goes to server 1, which both d and it wait for. d's copy
    is behind a. e's copy comes to server 1 in the moment of its only token.
    """
    at_s, outputs = (0.0, 0.1, 0.2, 0.3, 4.5), (5, 1, 2, 1, 1)
    requests = [request(*of) for of in zip("abcde", at_s, (4,) * 5, outputs, strict=True)]
    config = PolicyConfig(kv_tokens=96, block_tokens=4, max_model_len=70, max_seqs=1)
    expected = [
        ("a", "finished", 0, 1.0, 5.0),
        ("b", "finished", 1, 1.1, 1.1),
        ("c", "finished", 1, 3.1, 4.1),
        ("d", "finished", 1, 2.1, 2.1),
        ("e", "finished", 0, 6.0, 6.0),
    ]
    for macro in (True, False):
        checked, fleet = Checked(), FleetPlan(2, hedge_s=1.5)
        pools = [Pool(config, ONE_SECOND, 2)]
        of = simulate_cluster(
            requests, pools, closed_loop=False, macro=macro, build=checked, fleet=fleet
        )
        columns = ["request_id", "status", "replica", "first_token_s", "last_token_s"]
        found = [tuple(row) for row in of.requests[columns].round(9).itertuples(index=False)]
        assert found == expected
        assert of.extra["fleet"]["hedged"] == 3
        assert of.steps["end_s"].max() == 7.0, "e's copy runs to the end of its step"
        checked.check_empty()


def test_both_copies_refused_at_one_moment_end_alike_step_by_step() -> None:
    """Which server is asked first in that moment is chance; the last of them stands."""
    config = SMALL.changed(batching="continuous", max_seqs=1, queue_limit=0)
    requests = [request(str(n), 0.003 * min(n, 4), 1, 3 if n == 0 else 1) for n in range(9)]
    plan = FleetPlan(MOST, hedge_s=0.0)
    runs = [run(requests, config, plan, macro=macro) for macro in (True, False)]
    assert story(runs[0]) == story(runs[1])
    assert "refused" in set(runs[0].requests["status"])


@pytest.mark.parametrize("ahead", [False, True])
def test_a_drained_replica_is_paid_until_its_last_answer_ends(ahead: bool) -> None:
    """Also where its scheduler, which decides ahead, forgets the answer a moment later."""
    config = PolicyConfig(
        "unified", queue_samples=True, decide_ahead=ahead, kv_tokens=10_000, max_model_len=1000
    )
    rule = parse_rule("schedule:steps=2/1@4.5,max=2,interval_s=1,stabilisation_s=0")
    requests = [request(str(k), 0.5 + k / 4, output=9 + 30 * (k > 1)) for k in range(4)]
    requests.append(request("late", 80.0))
    got = simulate_cluster(
        requests, [Pool(config, ONE_SECOND, 2)], fleet=FleetPlan(2, (), rule), closed_loop=False
    )
    rows, hours = got.requests, sorted(got.extra["fleet"]["hours_by_replica"])
    last_s = rows[rows["request_id"] != "late"].groupby("replica")["last_token_s"].max()
    assert hours[0] * 3600 == pytest.approx(last_s.min(), abs=2e-6)
    assert hours[1] * 3600 == pytest.approx(rows["last_token_s"].max(), abs=2e-6)


def test_what_is_over_quota_is_refused_before_a_router_sees_it() -> None:
    requests = [
        replace(request(str(n), float(n), 4, 4), tenant=tenant)
        for n, tenant in enumerate(["a", "b", "a", None, "a", "b"])
    ]
    fleet = FleetPlan(2, quotas=parse_quotas("a=2/10,b=8/8"))
    of = simulate_cluster(requests, [Pool(SMALL, ONE_SECOND, 2)], closed_loop=False, fleet=fleet)
    assert list(of.requests["error"]) == [
        "",
        "",
        "over_quota: 8 tokens are more than the 6 left of the burst of 10",
        "",
        "",
        "",
    ]
    assert list(of.requests["status"]).count("refused") == 1
    assert list(of.requests["replica"][[0, 1, 3, 4, 5]]) == [0, 1, 0, 1, 0]


def test_a_replica_that_is_cut_off_goes_on_in_vain_until_it_hears_who_left() -> None:
    """Steps of a second, two sequences each; replica 0 is cut off from 1.5 to 6.2 s.

    It goes on with a, of which the client has a token, and with c, of which it has none, as the
    gateway sees at 3.5 s. e never gets there. Both are sent again; replica 0 ends its step at 7 s.
    """
    at_s, outputs = (0.0, 0.1, 1.0, 1.2, 2.0, 7.5, 7.6), (4, 9, 9, 1, 1, 1, 1)
    requests = [request(*of) for of in zip("abcdefg", at_s, (4,) * 7, outputs, strict=True)]
    config = PolicyConfig(kv_tokens=96, block_tokens=4, max_model_len=70, max_seqs=2)
    nan, why = float("nan"), "failed: replica 0 was cut off"
    expected = [
        ("a", "failed", 0, 1.0, nan, why),
        ("b", "finished", 1, 1.1, 9.1, ""),
        ("c", "finished", 1, 5.1, 13.1, ""),
        ("d", "finished", 1, 3.1, 3.1, ""),
        ("e", "finished", 1, 10.1, 10.1, ""),
        ("f", "finished", 1, 11.1, 11.1, ""),
        ("g", "finished", 0, 8.6, 8.6, ""),
    ]
    for macro in (True, False):
        faults = parse_faults("partition:replica=0,at_s=1.5,for_s=4.7")
        checked, fleet = Checked(), FleetPlan(2, faults, None, 2.0)
        pools = [Pool(config, ONE_SECOND, 2)]
        of = simulate_cluster(
            requests, pools, closed_loop=False, macro=macro, build=checked, fleet=fleet
        )
        columns = ["request_id", "status", "replica", "first_token_s", "last_token_s", "error"]
        found = [tuple(row) for row in of.requests[columns].round(9).itertuples(index=False)]
        assert repr(found) == repr(expected)
        figures = of.extra["fleet"]
        assert [figures[name] for name in ("partitions", "lost", "retried")] == [1, 3, 2]
        assert figures["sizes"][1] == [3.5, 1]
        assert of.steps[of.steps["replica"] == 0]["end_s"].iloc[-2] == 7.0
        checked.check_empty()


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ("crush:replica=0,at_s=1", "faults: unknown fault 'crush'; did you mean 'crash'?"),
        ("crash:replica=0", "faults: crash: field 'at_s' (seconds) is missing; it must be given"),
        ("crash:replica=0,at=1", "faults: crash: unknown key 'at'; did you mean 'at_s'?"),
        ("slow:replica=0,at_s=1,factor=0", "factor': '0' is not possible; it must be greater"),
        ("crash:replica=9,at_s=1", "faults: replica 9: there are replicas 0 to 1"),
        ("crash:replica=0,at_s=1 # remark\ncrash:replica=1,at_s=2", "faults: every replica crash"),
        (
            "crash:replica=0,at_s=1,for_s=5 slow:replica=0,at_s=4",
            "faults: replica 0: the fault at 1 s lasts until 6 s, and the next begins at 4 s",
        ),
        ("slow:replica=0,at_s=1 crash:replica=0,at_s=4", "the fault at 1 s never ends"),
    ],
)
def test_a_plan_of_faults_that_cannot_be_names_the_fault_and_the_key(
    faults: str, message: str
) -> None:
    with pytest.raises(PolicyError) as error:
        require_survivors(parse_faults(faults), 2, replaced=False)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("qeue:max=3", "autoscaling: unknown rule 'qeue'; did you mean 'queue'?"),
        ("queue", "autoscaling: queue: field 'max' is missing; it must be given"),
        ("queue:min=4,max=3", "min 4 is above max 3; give max=4 or more"),
        ("slo:max=3,target=2", "target': '2' is not possible; it must be less than or equal to 1"),
        ("schedule:max=3,steps=4@0", "field 'steps': '4@0' is not possible"),
    ],
)
def test_a_rule_that_cannot_be_names_the_key(rule: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_rule(rule)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
