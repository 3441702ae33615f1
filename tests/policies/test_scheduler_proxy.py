"""A scheduler around another one."""

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import Scheduler
from servetwin.policies.scheduler_proxy import SchedulerProxy
from tests.support.scheduler_steps import sequence


def test_every_call_reaches_the_scheduler_inside() -> None:
    inner = build_scheduler(PolicyConfig())
    proxy: Scheduler = SchedulerProxy(inner)
    seq = sequence("a")
    assert proxy.add(seq) is None
    assert proxy.changes_batch(seq)
    assert list(proxy.waiting()) == [seq]
    assert proxy.wake_s() is None
    batch = proxy.schedule(0.0)
    assert batch is not None
    assert proxy.repeatable_steps(batch) == 1
    assert proxy.complete(batch) == []
    assert proxy.load() == inner.load()
    assert proxy.holders() == [seq]
    assert proxy.dropped is inner.dropped
    assert proxy.memory is inner.memory
    assert proxy.abort("a") is seq
    assert inner.holders() == []
