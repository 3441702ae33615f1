"""Schedulers driven step by step without a simulator, and their batches in one line each."""

from typing import Any

from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import Scheduler
from servetwin.policies.sequence import Sequence


def scheduler_of(**settings: Any) -> Scheduler:
    """Return a scheduler over 16 blocks of 4 tokens, four slots, unless ``settings`` say else."""
    small: dict[str, Any] = {
        "kv_tokens": 64, "block_tokens": 4, "max_model_len": 64, "max_seqs": 4, "token_budget": 16,
    }  # fmt: skip
    return build_scheduler(PolicyConfig(**{**small, **settings}))


def sequence(name: str, prompt: int = 4, output: int = 2, **fields: Any) -> Sequence:
    """Return a sequence that arrives at 0 s."""
    arrival_s = fields.pop("arrival_s", 0.0)
    return Sequence(name, arrival_s, prompt, output, **fields)


def added(scheduler: Scheduler, *seqs: Sequence) -> Scheduler:
    """Add sequences that the scheduler must accept, and return it."""
    for seq in seqs:
        assert scheduler.add(seq) is None
    return scheduler


def line(batch: Batch | None) -> str:
    """Return ``id@start+tokens`` of each entry (``~padding``), then ``-preempted``."""
    if batch is None:
        return "idle"
    entries = [
        f"{e.seq.request_id}@{e.start}+{e.tokens}" + (f"~{e.padding}" if e.padding else "")
        for e in batch.entries
    ]
    return " ".join([*entries, *(f"-{seq.request_id}" for seq in batch.preempted)])


def step(scheduler: Scheduler, now_s: float = 0.0) -> str:
    """Run one step and return its line."""
    batch = scheduler.schedule(now_s)
    said = line(batch)
    if batch is not None:
        scheduler.complete(batch)
    return said


def steps(scheduler: Scheduler, count: int, now_s: float = 0.0) -> list[str]:
    """Run so many steps and return their lines."""
    return [step(scheduler, now_s) for _ in range(count)]
