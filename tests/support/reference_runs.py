"""Runs of shipped policies, and of the same ones over queues that are plain lists."""

from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import MEMORIES, SCHEDULERS
from servetwin.policies.schedulers.queueing import WaitingQueue
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.workloads.request import Request
from tests.support.random_runs import STEP_TIME
from tests.support.reference_queue import ReferenceAdmission, ReferenceQueue


def run_over_queues(config: PolicyConfig, requests: list[Request], reference: bool) -> Run:
    """Run shipped policies, or the same ones over plain lists."""
    scheduler = SCHEDULERS[config.batching]
    if reference:

        class Plain(ReferenceAdmission, scheduler):  # type: ignore[misc, valid-type]
            def build_queue(self, config: PolicyConfig) -> WaitingQueue:
                return ReferenceQueue(config.queue_order, self.memory)

        scheduler = Plain
    memory = MEMORIES.build(config.kv, config)
    return simulate(requests, scheduler(memory, config), STEP_TIME)
