"""A server on which nothing can go on is stopped, with what it lacks."""

from dataclasses import replace
from typing import Any

import pytest

from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.replica import Stalled
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from tests.support.checked import request

ONE_SECOND = LinearStepTime.of({"constant": 1.0})
SMALL: dict[str, Any] = {
    "kv_tokens": 64, "block_tokens": 4, "max_model_len": 32, "max_seqs": 2, "token_budget": 8,
}  # fmt: skip
REQUESTS = [request("a", 0.0, prompt=5, output=4), request("b", 0.0, prompt=6, output=3)]


class NeverRuns(ContinuousBatching):
    def schedule(self, now_s: float) -> Batch | None:
        return None


class AlwaysLater(ContinuousBatching):
    """Asks to be woken a bit later, for ever."""

    def schedule(self, now_s: float) -> Batch | None:
        self._next_s = now_s + 1.0
        return None

    def wake_s(self) -> float | None:
        return self._next_s


class WakesNow(AlwaysLater):
    """Asks to be woken at a moment that has passed."""

    def wake_s(self) -> float | None:
        return 0.0


class WakesNever(AlwaysLater):
    """Asks to be woken at no moment at all."""

    def wake_s(self) -> float | None:
        return float("nan")


def test_a_scheduler_without_a_checker_that_never_runs_is_found_by_the_replica() -> None:
    config = PolicyConfig(**SMALL)
    with pytest.raises(Stalled) as caught:
        simulate(REQUESTS, NeverRuns(PagedKV(config), config), ONE_SECOND)
    assert str(caught.value) == (
        "no progress is possible from 0 s on: 0 running and 2 waiting requests, but no batch; "
        "request 'a' needs 5 KV tokens of 64 free, so it lacks nothing but its turn"
    )


def test_a_memory_that_others_fill_is_named_as_what_is_missing() -> None:
    config = PolicyConfig(**SMALL)
    memory = PagedKV(config)
    assert memory.reserve(Sequence("squatter", 0.0, 60, 1), 60)
    with pytest.raises(Stalled) as caught:
        simulate(REQUESTS, ContinuousBatching(memory, config), ONE_SECOND)
    assert "request 'a' needs 5 KV tokens of 4 free, so it lacks KV memory" in str(caught.value)


@pytest.mark.parametrize("policy", [AlwaysLater, WakesNow, WakesNever])
def test_a_scheduler_that_wakes_in_vain_is_stopped(
    policy: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servetwin.sim.core.replica.MOST_WAKES_IN_VAIN", 500)
    scheduler = build_scheduler(PolicyConfig(**SMALL, batching=f"{__file__}:{policy.__name__}"))
    with pytest.raises(Stalled, match=r"no progress is possible from .* request 'a' needs"):
        simulate(REQUESTS, scheduler, ONE_SECOND)


def test_answers_that_preempt_each_other_forever_are_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four answers to a prompt, recomputed seven rows a step where three fit: vLLM never ends."""
    monkeypatch.setattr("servetwin.sim.core.replica.MOST_PREEMPTIONS_IN_VAIN", 50)
    config = PolicyConfig(
        batching="unified", kv_tokens=27 * 16, queue_order="priority", victim="lowest-priority",
        long_prefill_tokens=7, full_prompt_gate=False, queue_samples=True,
    )  # fmt: skip
    alike = replace(request("a", prompt=61, output=104), samples=4)
    with pytest.raises(Stalled, match=r"^4 sequences preempt .* \(51 preemptions"):
        simulate([alike], build_scheduler(config), ONE_SECOND)


def test_preemptions_between_which_there_are_tokens_are_no_stall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("servetwin.sim.core.replica.MOST_PREEMPTIONS_IN_VAIN", 3)
    config = PolicyConfig(kv_tokens=192, max_seqs=6, max_model_len=160, token_budget=200)
    requests = [request(f"{number}", prompt=16, output=120) for number in range(6)]
    rows = simulate(requests, build_scheduler(config), ONE_SECOND).requests
    assert rows["status"].to_list() == ["finished"] * 6
    assert rows["preemptions"].sum() > 2 * 3
