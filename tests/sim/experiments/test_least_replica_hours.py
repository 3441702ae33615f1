"""The replica-hours that no fleet goes below: a law over fleets, and how near they come."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.policies.registry import ROUTERS
from servetwin.sim.core.replica import Stalled
from servetwin.sim.experiments.capacity import admitting_all
from servetwin.sim.experiments.fleet import least_replica_hours
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario, replicate
from servetwin.sim.step_times.server_model import PluginServer
from servetwin.sim.step_times.step_time import LinearStepTime, StepTime
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.sim.core.test_fleet import MOST, RULES, fault_plans
from tests.support.checked import request
from tests.support.effort import examples
from tests.support.random_runs import STEP_TIME, Opaque, every_scheduler, policies, workloads


@dataclass(frozen=True)
class Server(PluginServer):
    """A server of these step times."""

    name: str = "server"
    steps: StepTime = STEP_TIME

    def model(self) -> StepTime:
        """Return the step times."""
        return self.steps


def roofline(name: str) -> StepTime:
    """Return the step times of a model on an H100."""
    return Deployment(model=name, gpu="h100").servers().scenario().profile.step_time(None).model()  # type: ignore[arg-type]


SECONDS = st.sampled_from([0.0, 0.0, 1e-5, 1e-3, 0.02])
FEATURES = (
    "constant", "decode_sequences", "prefill_chunks", "rows_from_0", "rows_from_16",
    "decode_context_tokens", "prefill_pairs", "prefill_context_tokens", "batch_pairs",
    "swapped_tokens",
)  # fmt: skip
ROOFLINES = [roofline(name) for name in ("llama-3-8b", "gemma-2-9b")]


@st.composite
def step_times(draw: st.DrawFn) -> StepTime:
    """Step times of any coefficients, of rooflines with and without windows, and of a class."""
    known = draw(st.sampled_from([None, None, None, STEP_TIME, Opaque(), *ROOFLINES]))
    return known or LinearStepTime.of({name: draw(SECONDS) for name in FEATURES})


@every_scheduler
@settings(max_examples=examples(60))
@given(data=st.data(), requests=workloads(), step_time=step_times(), more=st.booleans())
def test_no_fleet_finishes_all_requests_in_fewer_replica_hours(
    batching: str, data: st.DataObject, requests: list[Request], step_time: StepTime, more: bool
) -> None:
    config = data.draw(policies(batching))
    plan = data.draw(fault_plans()) if data.draw(st.booleans()) else ""
    plan = plan.replace("factor=1.5", data.draw(st.sampled_from(["factor=1.5", "factor=0.4"])))
    rule = f"{data.draw(st.sampled_from(RULES))},max={MOST},interval_s=0.05,stabilisation_s=0"
    autoscaling = "" if plan and data.draw(st.booleans()) else rule
    more_profiles = (Server(),) if more and not autoscaling and plan else ()
    cluster = ClusterConfig(
        replicas=data.draw(st.integers(1, MOST)) if autoscaling else MOST,
        router=data.draw(st.sampled_from(list(ROUTERS))),
        autoscaling=autoscaling, faults=plan, detection_s=0.01, retries=100,
        hedge_s=data.draw(st.sampled_from([None, None, 0.0, 0.05])),
    )  # fmt: skip
    scenario = admitting_all(Scenario(config, Server(steps=step_time), cluster, more_profiles))
    scenario = replace(scenario, policies=replace(scenario.policies, queued_tokens_limit=None))
    samples = 1 if batching == "static" else None  # it gives one answer to a prompt
    trace = Trace(tuple(replace(r, samples=samples or r.samples) for r in requests), "law")
    try:
        run = replicate(trace, scenario, np.random.SeedSequence(0))
    except Stalled:
        event("preempted forever")
        return
    finished = bool((run.requests["status"] == "finished").all())
    event(f"all finished: {finished}")
    if finished:
        least = least_replica_hours(trace, scenario)
        assert least is not None
        assert least <= run.extra["fleet"]["replica_hours"] * (1 + 1e-9)


def alike(count: int, prompt: int, output: int) -> Trace:
    """Requests of lengths around these, all at once."""
    rng = np.random.default_rng(0)
    lengths = (rng.lognormal(0.0, 0.5, (count, 2)) * [prompt, output]).astype(int) + 1
    rows = enumerate(lengths.clip(1, 8000).tolist())
    return Trace(tuple(request(str(n), 0.0, p, o) for n, (p, o) in rows), "alike")


def share_needed(trace: Trace) -> float:
    """Return the bound as a share of the hours in which one full server is busy."""
    scenario = Deployment(model="llama-3-8b", gpu="h100").servers().scenario()
    config = replace(scenario.policies, max_model_len=16_384)
    scenario = replace(scenario, policies=config)
    busy_s = replicate(trace, scenario, np.random.SeedSequence(0)).requests["last_token_s"].max()
    least = least_replica_hours(trace, scenario)
    assert least is not None
    return 3600 * least / float(busy_s)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompt", "output", "least"),
    [(500, 200, 0.63), (100, 600, 0.82), (3000, 100, 0.85)],
    ids=["chats", "long answers", "long prompts"],
)
def test_a_full_server_is_not_far_above_the_bound(prompt: int, output: int, least: float) -> None:
    assert least < share_needed(alike(1000, prompt, output)) <= 1


def test_one_request_at_a_time_needs_its_own_steps_and_no_less() -> None:
    """Two prompts of a row, and three decodes: steps of 10 ms, and 1 ms per token read."""
    reads = {"decode_context_tokens": 0.001, "prefill_pairs": 0.001}
    steps = LinearStepTime.of({"constant": 0.01, **reads})
    config = replace(
        Scenario(Server(steps=steps).policy_config(), Server(steps=steps)).policies,
        max_seqs=1,
        prefix_cache=True,
    )
    trace = Trace((request("a", 0.0, 1, 4), request("b", 5.0, 1, 1)), "two")
    hours = least_replica_hours(trace, Scenario(config, Server(steps=steps)))
    assert hours == pytest.approx((0.01 * 5 + 0.001 * (1 + 1 + 2 + 3 + 4)) / 3600)
