"""What a server decides: batching, KV memory, prefix sharing, preemption, refusal."""

from policies.batch import Batch as Batch
from policies.batch import BatchShape as BatchShape
from policies.batch import ScheduledSequence as ScheduledSequence
from policies.config import PolicyConfig as PolicyConfig
from policies.protocols import KVMemory as KVMemory
from policies.protocols import KVUsage as KVUsage
from policies.protocols import Refusal as Refusal
from policies.protocols import Scheduler as Scheduler
from policies.registry import build_scheduler as build_scheduler
from policies.sequence import Sequence as Sequence
