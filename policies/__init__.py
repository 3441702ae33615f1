"""What a server decides: batching, KV memory, prefix sharing, preemption, refusal."""

from policies.batch import Batch, BatchShape, ScheduledSequence
from policies.config import PolicyConfig
from policies.protocols import KVMemory, KVUsage, Refusal, Scheduler
from policies.registry import build_scheduler
from policies.sequence import Sequence

__all__ = [
    "Batch",
    "BatchShape",
    "KVMemory",
    "KVUsage",
    "PolicyConfig",
    "Refusal",
    "ScheduledSequence",
    "Scheduler",
    "Sequence",
    "build_scheduler",
]
