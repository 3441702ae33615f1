"""Memory that runs out in a step: a smaller step is tried, the server goes on."""

from dataclasses import replace

import pytest
import torch

from servetwin.engine.core.step_isolation import is_out_of_memory, let_go
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import CheckedMemory
from tests.support.moved_keys import SMALL, Served, plain_tokens, random_requests, serve

SCHEDULERS = ["static", "continuous", "chunked", "unified"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("poisoned"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_it_is_known_by_its_class_or_its_words(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_torch_says_so_in_these_words() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert is_out_of_memory(caught.value)


def test_the_frames_of_an_error_hold_no_tensors() -> None:
    class Large:
        freed = False

        def __del__(self) -> None:
            Large.freed = True

    def fail() -> None:
        large = Large()
        raise MemoryError(id(large))

    with pytest.raises(MemoryError) as caught:
        fail()
    assert not Large.freed
    let_go(caught.value)
    assert Large.freed


@pytest.mark.parametrize("batching", SCHEDULERS)
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_a_step_that_is_too_large_runs_in_parts(batching: str, prefix_cache: bool) -> None:
    config = replace(SMALL, batching=batching, prefix_cache=prefix_cache, kv_tokens=512)
    requests = random_requests(5, count=8, shared_tokens=9)
    served = serve(config, requests, most_rows=5)
    assert served.failures == []
    assert served.tokens == plain_tokens(requests)
    assert max(served.computed_rows) <= 5
    assert len(served.computed_rows) > len(served.log.records)
    assert served.replayed(config).identical
    assert_nothing_is_held(served, config)


def test_what_cannot_run_at_all_is_refused_and_the_server_goes_on() -> None:
    requests = random_requests(5, count=4)
    served = serve(SMALL, requests, most_rows=0)
    assert served.failures == ["memory ran out in its step, even for one row of it alone"] * 4
    assert served.tokens == {}
    assert_nothing_is_held(served, SMALL)


def assert_nothing_is_held(served: Served, config: PolicyConfig) -> None:
    memory = served.core.scheduler.memory
    assert served.core.unfinished == 0
    assert memory.free_tokens() == config.kv_tokens
    assert isinstance(memory, CheckedMemory)
    memory.check(served.core.scheduler.holders())
