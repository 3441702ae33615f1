"""Slots for LoRA adapters: laws of random runs, and what the settings refuse."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.scheduler_proxy import SchedulerProxy
from servetwin.sim.core.simulate import simulate
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from tests.support.checked import request
from tests.support.random_runs import STEP_TIME, every_scheduler, policies, workloads


@every_scheduler
@given(data=st.data(), requests=workloads(), slots=st.sampled_from([1, 2, 3]))
def test_what_runs_uses_no_more_adapters_than_there_are_slots(
    batching: str, data: st.DataObject, requests: list[Request], slots: int
) -> None:
    drawn = data.draw(policies(batching))
    config = replace(drawn, queue_order="fcfs", adapter_slots=slots)
    scheduler = build_scheduler(config)
    used: list[set[str]] = []
    schedule = scheduler.schedule

    class Watched(SchedulerProxy):
        def schedule(self, now_s: float):  # type: ignore[no-untyped-def]
            batch = schedule(now_s)
            used.append({seq.adapter for seq in scheduler.holders() if seq.adapter})
            return batch

    run = simulate(requests, Watched(scheduler), STEP_TIME, macro=False)
    assert max(map(len, used), default=0) <= slots
    assert (run.requests["status"] != "").all()


@given(requests=workloads())
def test_with_a_slot_for_each_adapter_nothing_changes(requests: list[Request]) -> None:
    """Where none is preempted: such a one goes before all that wait."""
    config = PolicyConfig(kv_tokens=5000, block_tokens=4, max_model_len=70, max_seqs=5)
    plain = simulate(requests, build_scheduler(config), STEP_TIME)
    slots = simulate(requests, build_scheduler(replace(config, adapter_slots=3)), STEP_TIME)
    assert plain.requests.equals(slots.requests)


def test_loading_takes_the_host_link_as_long_as_its_positions() -> None:
    config = PolicyConfig(adapter_slots=1, adapter_tokens=500)
    asked = replace(request("a"), model="x")
    loaded = simulate([asked], build_scheduler(config), STEP_TIME)
    there = simulate([asked], build_scheduler(replace(config, adapter_tokens=0)), STEP_TIME)
    later_s = loaded.requests["first_token_s"][0] - there.requests["first_token_s"][0]
    assert later_s == pytest.approx(500 * 1e-4)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"adapter_tokens": 5}, "adapter_tokens: 5 is not possible"),
        ({"adapter_slots": 2, "queue_order": "sjf"}, "queue_order: 'sjf' is not possible"),
        ({"adapter_slots": -1}, "adapter_slots: -1 is not possible"),
    ],
)
def test_what_cannot_be_is_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(PolicyError, match=f"^{said}"):
        PolicyConfig(**settings)  # type: ignore[arg-type]
