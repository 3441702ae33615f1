"""A sequence that fails in a step takes no other with it, and leaves nothing behind."""

from collections.abc import Callable

import numpy as np
import pytest

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.core_process import CoreLoop
from servetwin.engine.core.messages import Add, RequestFailed, Stop, TokenEvent, Update
from servetwin.engine.core.step_isolation import ExecutorLost
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import CheckedMemory
from tests.support.core_story import FakeClock, Script, ScriptedInbox, policy
from tests.support.fake_engine import POISON
from tests.support.filled_memory import FilledMemory
from tests.support.memory_step_log import MemoryStepLog


class PoisonedStory:
    """A script on the real core over a memory that knows what it holds."""

    def __init__(
        self,
        config: PolicyConfig,
        script: Script,
        raises: Callable[[Batch], bool] = lambda _: False,
    ) -> None:
        clock, self.log = FakeClock(), MemoryStepLog()
        scheduler = build_scheduler(config)
        self.executor = FilledMemory(scheduler.memory.block_tokens, raises)
        self.core = EngineCore(
            scheduler, self.executor, prefix_cache=config.prefix_cache, clock=clock,
            log=self.log,
        )  # fmt: skip
        self.updates: list[Update] = []
        CoreLoop(
            self.core, ScriptedInbox(clock, [*script, (1000.0, Stop())]), self.updates.append
        ).run()
        self.failed: list[str] = []
        self.tokens: dict[str, list[int]] = {}
        for event in (event for update in self.updates for event in update.events):
            if isinstance(event, RequestFailed):
                self.failed.append(event.request_id)
            elif isinstance(event, TokenEvent):
                self.tokens.setdefault(event.request_id, []).append(event.token_id)

    def assert_nothing_is_held(self) -> None:
        assert self.core.unfinished == 0
        assert self.core.stats().kv_usage == 0
        memory = self.core.scheduler.memory
        if isinstance(memory, CheckedMemory):
            memory.check(self.core.scheduler.holders())


def request(name: str, token_ids: list[int], max_tokens: int = 3) -> Add:
    return Add(name, token_ids, SamplingParams(max_tokens))


SHARED = list(range(100, 112))
"""Three blocks of a prompt."""


@pytest.mark.parametrize("batching", ["static", "continuous", "chunked", "prefill-first"])
@pytest.mark.parametrize("kv", ["contiguous", "paged"])
def test_the_poisoned_fail_and_the_others_have_all_their_tokens(batching: str, kv: str) -> None:
    requests = [request(name, [ord(name)] * 5) for name in "abcde"]
    requests[3:3] = [request("x", [7, POISON, 7]), request("y", [POISON])]
    config = policy(batching=batching, kv=kv, max_seqs=8, token_budget=64, kv_tokens=512)
    story = PoisonedStory(config, [(0.0, each) for each in requests])
    assert sorted(story.failed) == ["x", "y"]
    assert {name: len(tokens) for name, tokens in story.tokens.items()} == dict.fromkeys("abcde", 3)
    assert [(name, why) for _, name, why in story.log.failures] == [
        (name, "RuntimeError: poisoned") for name in story.failed
    ]
    assert [record.step for record in story.log.records] == list(range(len(story.log.records)))
    story.assert_nothing_is_held()


def test_one_of_many_is_found_by_halving() -> None:
    requests = [request(f"r{i}", [i + 1] * 2, 1) for i in range(16)]
    requests[5] = request("x", [POISON] * 2, 1)
    config = policy(max_seqs=16, token_budget=64, kv_tokens=512)
    story = PoisonedStory(config, [(0.0, each) for each in requests])
    assert story.failed == ["x"]
    assert len(story.log.records) == 1
    assert story.executor.runs == 1 + 2 * 4  # the whole, then two halves at each of four levels


def test_what_fails_only_together_fails_nowhere() -> None:
    config = policy(max_seqs=4, token_budget=64)
    script: Script = [(0.0, request(name, [ord(name)] * 3)) for name in "abcd"]
    story = PoisonedStory(config, script, raises=lambda batch: len(batch) > 2)
    assert story.failed == []
    assert [len(tokens) for tokens in story.tokens.values()] == [3] * 4


@pytest.mark.parametrize("index", ["radix", "blocks"])
@pytest.mark.parametrize("batching", ["static", "continuous", "chunked"])
def test_a_prefix_that_a_failed_prompt_should_have_filled(batching: str, index: str) -> None:
    """In the same step a healthy prompt shares it, later another one asks for it."""
    config = policy(
        batching=batching, kv="paged", prefix_cache=True, prefix_index=index, max_seqs=4,
        token_budget=128, kv_tokens=512,
    )  # fmt: skip
    script: Script = [
        (0.0, request("poisoned", [*SHARED, POISON] * 2)),
        (0.0, request("beside", [*SHARED, 1])),
        (0.0, request("too", [*SHARED, 2, 3])),
        (50.0, request("later", [*SHARED, POISON - 1, 4])),
        (60.0, request("again", [*SHARED, 1])),
        (70.0, request("no hit", [*SHARED, POISON] * 2)),
    ]
    story = PoisonedStory(config, script)
    assert story.failed == ["poisoned", "no hit"]
    assert {name: len(tokens) for name, tokens in story.tokens.items()} == dict.fromkeys(
        ("beside", "too", "later", "again"), 3
    )
    assert story.tokens["again"] == story.tokens["beside"]
    story.assert_nothing_is_held()


@pytest.mark.parametrize("seed", range(12))
def test_random_poison_among_shared_prefixes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = policy(
        batching=str(rng.choice(["static", "continuous", "chunked", "prefill-first"])),
        prefix_cache=True, prefix_index=str(rng.choice(["radix", "blocks"])), max_seqs=6,
        token_budget=24, kv_tokens=256, max_model_len=64,
    )  # fmt: skip
    stems = [[int(t) for t in rng.integers(0, 99, 16)] for _ in range(3)]
    script: list[tuple[float, Add]] = []
    for number in range(60):
        ids = [*stems[rng.integers(3)][: rng.integers(1, 17)], number]
        if rng.random() < 0.2:
            ids[rng.integers(len(ids))] = POISON
        script.append(
            (float(rng.integers(60)), request(f"r{number}", ids, int(rng.integers(1, 9))))
        )
    poisoned = {add.request_id for _, add in script if POISON in add.token_ids}
    story = PoisonedStory(config, script)
    assert set(story.failed) == poisoned
    assert {name: len(tokens) for name, tokens in story.tokens.items()} == {
        add.request_id: add.params.max_tokens for _, add in script if add.request_id not in poisoned
    }
    story.assert_nothing_is_held()


def test_a_lost_executor_is_not_blamed_on_a_sequence() -> None:
    def lose(batch: Batch) -> bool:
        raise ExecutorLost("no device")

    with pytest.raises(ExecutorLost):
        PoisonedStory(policy(), [(0.0, request("a", [1]))], raises=lose)


def test_a_request_that_cannot_even_begin_fails_alone() -> None:
    script: Script = [(0.0, request("a", [1])), (0.0, Add("b", None, SamplingParams(2)))]  # type: ignore[arg-type]  # what no client can send
    story = PoisonedStory(policy(), script)
    assert (story.failed, len(story.tokens["a"])) == (["b"], 3)
    story.assert_nothing_is_held()
