"""Runs of steps as one event against one event per step."""

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import StepTime
from servetwin.workloads.request import Request

POLICIES = PolicyConfig(max_seqs=16, kv_tokens=6000, max_model_len=4096, batching="chunked")
REQUESTS = [Request(f"r{i}", 0.01 * i, 80 + 37 * i % 900, 40 + 13 * i % 300) for i in range(60)]


def assert_macro_steps_change_nothing(model: StepTime) -> None:
    runs = [
        simulate(REQUESTS, build_scheduler(POLICIES), model, macro=macro) for macro in (True, False)
    ]
    assert runs[0].requests.equals(runs[1].requests)
    assert len(runs[0].steps) < len(runs[1].steps)
