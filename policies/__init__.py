"""What a server decides: batching, KV memory, prefix sharing, preemption, refusal."""

from servetwin.policies.batch import Batch as Batch
from servetwin.policies.batch import BatchShape as BatchShape
from servetwin.policies.batch import ScheduledSequence as ScheduledSequence
from servetwin.policies.build import build_scheduler as build_scheduler
from servetwin.policies.config import PolicyConfig as PolicyConfig
from servetwin.policies.protocols import KVMemory as KVMemory
from servetwin.policies.protocols import KVUsage as KVUsage
from servetwin.policies.protocols import Refusal as Refusal
from servetwin.policies.protocols import Scheduler as Scheduler
from servetwin.policies.sequence import Sequence as Sequence
