"""Laws of replicas that fail, restart, slow down, are started and drained: nothing is lost."""

from collections.abc import Iterable
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
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
from tests.sim.core.test_cluster import NOISE, SMALL, Checked
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


def test_both_copies_refused_at_one_moment_end_alike_step_by_step() -> None:
    """Which server is asked first in that moment is chance; the last of them stands."""
    config = SMALL.changed(batching="continuous", max_seqs=1, queue_limit=0)
    requests = [request(str(n), 0.003 * min(n, 4), 1, 3 if n == 0 else 1) for n in range(9)]
    plan = FleetPlan(MOST, hedge_s=0.0)
    runs = [run(requests, config, plan, macro=macro) for macro in (True, False)]
    assert story(runs[0]) == story(runs[1])
    assert "refused" in set(runs[0].requests["status"])


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
        (
            "utilisation:max=3,target=70",
            "'70' is not possible; it must be less than or equal to",
        ),
        ("schedule:max=3,steps=4@0", "field 'steps': '4@0' is not possible"),
    ],
)
def test_a_rule_that_cannot_be_names_the_key(rule: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_rule(rule)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
