"""The core on a fake clock: a script of messages in, what it logged and sent out."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.core_process import CoreLoop
from servetwin.engine.core.messages import (
    Add,
    Message,
    Refused,
    RequestFailed,
    Stop,
    TokenEvent,
    Update,
)  # fmt: skip
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import NewToken
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.engine.text.text_stream import OutputText
from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from tests.support.fake_engine import sampled_outputs
from tests.support.memory_step_log import MemoryStepLog

STEP_S = 1.0

Script = Iterable[tuple[float, Message]]
"""Messages and when they come."""


class FakeClock:
    """Time stands still unless a step runs or the loop sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class SlowExecutor:
    """Every step takes ``STEP_S``; the next token of a sequence is what ``choose`` says."""

    def __init__(self, clock: FakeClock, choose: Callable[[list[int]], int]) -> None:
        self._clock = clock
        self._choose = choose

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> dict[str, list[NewToken]]:
        self._clock.now_s += STEP_S
        sampled = sampled_outputs(batch)
        return {name: [NewToken(self._choose(states[name].token_ids))] for name in sampled}

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """There is nothing to copy."""


class DraftingExecutor(SlowExecutor):
    """Passes that verify drafts yield so many tokens as ``accepted`` says, and one more each."""

    accepted: tuple[int, ...] = ()

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> dict[str, list[NewToken]]:
        tokens = super().execute(batch, states)
        for entry in batch.entries[: batch.drafted]:
            known = states[entry.seq.request_id].token_ids
            accepted = self.accepted[len(known) % len(self.accepted)]
            ids = [self._choose([*known, *[0] * ahead]) for ahead in range(1 + accepted)]
            tokens[entry.seq.request_id] = [NewToken(token, entry.tokens - 1) for token in ids]
        return tokens


class ScriptedInbox:
    """Messages with their times; sleeping moves the fake clock."""

    def __init__(self, clock: FakeClock, script: Script) -> None:
        self._clock = clock
        self._script = sorted(script, key=lambda item: item[0])

    def drain(self) -> list[Message]:
        due = [message for at_s, message in self._script if at_s <= self._clock.now_s]
        del self._script[: len(due)]
        return due

    def wait(self, seconds: float | None) -> None:
        until_s = [self._script[0][0]] if self._script else []
        if seconds is not None:
            until_s.append(self._clock.now_s + seconds)
        self._clock.now_s = min(until_s)


class Story:
    """A core on a fake clock, what it logged and what it sent."""

    def __init__(
        self,
        config: PolicyConfig,
        script: Script,
        choose: Callable[[list[int]], int] = lambda token_ids: 300 + len(token_ids),
        executor: type[SlowExecutor] = SlowExecutor,
    ) -> None:
        clock = FakeClock()
        self.log = MemoryStepLog()
        self.core = EngineCore(
            build_scheduler(config),
            executor(clock, choose),
            prefix_cache=config.prefix_cache,
            clock=clock,
            log=self.log,
        )
        self.updates: list[Update] = []
        inbox = ScriptedInbox(clock, [*script, (1000.0, Stop())])
        CoreLoop(self.core, inbox, self.updates.append).run()

    @property
    def events(self) -> list[TokenEvent | Refused | RequestFailed]:
        return [event for update in self.updates for event in update.events]

    def tokens(self, request_id: str) -> list[TokenEvent]:
        return [e for e in self.events if isinstance(e, TokenEvent) and e.request_id == request_id]

    def text(self, request_id: str, params: SamplingParams) -> str:
        """What the client of a request reads."""
        text = OutputText(ByteTokenizer(), params)
        tokens = self.tokens(request_id)
        return "".join(text.read(e.token_id, e.finish_reason is not None) for e in tokens)

    def steps(self) -> list[tuple[float, bool, list[tuple[str, int, int, int]]]]:
        return [(r.now_s, r.idle_before, r.entries) for r in self.log.records]


def add(request_id: str, prompt_tokens: int, max_tokens: int, **params: Any) -> Add:
    return Add(request_id, [1] * prompt_tokens, SamplingParams(max_tokens, **params))


FIVE = [
    (0.0, add("a", 3, 3)),
    (0.0, add("b", 2, 1)),
    (1.5, add("c", 1, 2)),
    (2.5, add("d", 2, 2)),
    (9.0, add("e", 1, 1)),
]
TINY = PolicyConfig(
    kv_tokens=64, block_tokens=4, max_model_len=32, max_seqs=2, token_budget=4, wait_limit_s=2.0
)


def policy(**changes: Any) -> PolicyConfig:
    return PolicyConfig(**{**TINY.as_dict(), **changes})
