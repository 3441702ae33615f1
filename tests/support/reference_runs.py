"""Runs of shipped policies, and of the same ones over queues that are plain lists."""

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import WaitingQueue
from servetwin.policies.registry import MEMORIES, SCHEDULERS
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.workloads.request import Request
from tests.support.random_runs import STEP_TIME
from tests.support.reference_queue import ReferenceIntake, ReferenceQueue


def run_over_queues(config: PolicyConfig, requests: list[Request], reference: bool) -> Run:
    """Run shipped policies, or the same ones over plain lists."""
    memory = MEMORIES.build(config.kv, config)
    policy = SCHEDULERS[config.batching]
    if not reference:
        return simulate(requests, policy(memory, config), STEP_TIME)

    class Plain(policy):  # type: ignore[misc, valid-type]
        def build_queue(self, config: PolicyConfig) -> WaitingQueue:
            return ReferenceQueue(config.queue_order, self.memory)

    scheduler = Plain(memory, config)
    intake = ReferenceIntake(scheduler.queue, memory, config)
    intake._holds_any = False
    scheduler.intake, scheduler.dropped = intake, intake.dropped
    return simulate(requests, scheduler, STEP_TIME)
