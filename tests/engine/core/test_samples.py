"""Several answers to one prompt: shared blocks, seeds of their own, and an end for each."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.messages import RequestFailed, TokenEvent
from servetwin.engine.sampling.sampling_params import EOS_ID, SamplingParams, sample_seed
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import SCHEDULERS
from tests.support.fake_engine import FakeExecutor
from tests.support.filled_memory import FilledMemory
from tests.support.tiny_core import tiny_core

SMALL = PolicyConfig(
    kv_tokens=96, block_tokens=4, max_model_len=64, max_seqs=6, token_budget=24, wait_limit_s=0.0
)
CONFIGS = [
    *(replace(SMALL, batching=name) for name in SCHEDULERS),
    *(replace(SMALL, batching=name, prefix_cache=True) for name in ("continuous", "unified")),
    replace(SMALL, batching="chunked", prompt_blocks="chunk", prefix_cache=True),
    replace(SMALL, kv="contiguous", kv_tokens=256),
    replace(SMALL, kv="grouped", kv_tokens=160),
    replace(SMALL, admission="full"),
    replace(SMALL, prefix_cache=True, prefix_index="blocks"),
]
PROMPTS = [list(range(300, 300 + size)) for size in (3, 8, 13, 17)]


def run(core: EngineCore, requests: Iterable[tuple[str, list[int], SamplingParams]]) -> list[
    TokenEvent | RequestFailed
]:  # fmt: skip
    for request_id, prompt, params in requests:
        assert core.add(request_id, prompt, params, 0.0) is None
    events: list[TokenEvent | RequestFailed] = []
    while core.unfinished:
        events += core.step(0.0) or ()
    assert core.scheduler.memory.free_tokens() == core.scheduler.memory.capacity_tokens
    assert (core._states, core._outputs) == ({}, {})
    return events


def answers(events: Iterable[TokenEvent | RequestFailed]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for event in events:
        assert isinstance(event, TokenEvent)
        found.setdefault((event.request_id, event.sample), []).append(event.token_id)
    return found


@pytest.mark.parametrize(
    "config", CONFIGS, ids=lambda c: f"{c.name}-{c.admission}-{c.prefix_index}"
)
def test_samples_attend_to_their_own_tokens_and_all_have_their_length(config: PolicyConfig) -> None:
    executor = FilledMemory(config.block_tokens)
    core = EngineCore(build_scheduler(config), executor, prefix_cache=config.prefix_cache)
    params = [SamplingParams(1 + 5 * n, n=n, ignore_eos=True) for n in (1, 2, 3, 4)]
    requests = [
        (f"r{n}", prompt, own) for n, (prompt, own) in enumerate(zip(PROMPTS, params, strict=True))
    ]
    found = answers(run(core, requests))
    assert {key: len(tokens) for key, tokens in found.items()} == {
        (f"r{place}", sample): own.max_tokens
        for place, own in enumerate(params)
        for sample in range(own.n)
    }


@pytest.mark.parametrize("max_tokens", [1, 9])
def test_blocks_are_shared_and_only_the_last_one_is_copied(max_tokens: int) -> None:
    class Counting(FakeExecutor):
        copied = 0

        def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
            self.copied += len(copies)

    for prompt, copies in ((PROMPTS[1], 0), (PROMPTS[2], 3)):  # 8 tokens fill two blocks
        executor = Counting()
        core = EngineCore(build_scheduler(replace(SMALL, kv_tokens=256)), executor)
        run(core, [("r", prompt, SamplingParams(max_tokens, n=4))])
        assert executor.copied == (copies if max_tokens > 1 else 0)


def test_a_sample_ends_at_its_own_stop_and_the_others_go_on() -> None:
    """Every sample counts upwards; of sample 1 the first token is the end, of sample 2 the next."""

    class Ending(FakeExecutor):
        def execute(self, batch, states):  # type: ignore[no-untyped-def]
            tokens = super().execute(batch, states)
            ends = {"r#1": 1, "r#2": 2}
            return {
                name: [own[0]._replace(token_id=EOS_ID)]
                if len(states[name].token_ids) == 3 + ends.get(name, 9) - 1
                else own
                for name, own in tokens.items()
            }

    core = EngineCore(build_scheduler(SMALL), Ending())
    events = run(core, [("r", PROMPTS[0], SamplingParams(6, n=3))])
    found = answers(events)
    assert {key[1]: len(tokens) for key, tokens in found.items()} == {0: 6, 1: 1, 2: 2}
    ends = [
        (event.sample, event.finish_reason)
        for event in events
        if isinstance(event, TokenEvent) and event.finish_reason
    ]
    assert sorted(ends) == [(0, "length"), (1, "stop"), (2, "stop")]


@pytest.mark.parametrize("batching", ["continuous", "unified", "static", "prefill-first"])
@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_an_abort_takes_all_samples_and_leaves_the_others_alone(batching: str, steps: int) -> None:
    config = replace(SMALL, batching=batching)
    core = EngineCore(build_scheduler(config), FilledMemory(4))
    assert core.add("gone", PROMPTS[2], SamplingParams(9, n=3, ignore_eos=True), 0.0) is None
    assert core.add("kept", PROMPTS[1], SamplingParams(9, n=2, ignore_eos=True), 0.0) is None
    kept: list[TokenEvent | RequestFailed] = []
    for step in range(40):
        if step == steps:
            core.abort("gone")
            core.abort("gone")
        events = core.step(0.0) or []
        assert step < steps or all(event.request_id == "kept" for event in events)
        kept += [event for event in events if event.request_id == "kept"]
    assert {key: len(tokens) for key, tokens in answers(kept).items()} == {
        ("kept", 0): 9,
        ("kept", 1): 9,
    }
    assert core.unfinished == 0
    assert core.scheduler.memory.free_tokens() == core.scheduler.memory.capacity_tokens


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_a_sample_that_fails_fails_its_request_once(batching: str) -> None:
    def raises(batch) -> bool:  # type: ignore[no-untyped-def]
        return any(entry.seq.output_id == "bad#1" for entry in batch.entries if entry.start > 14)

    core = EngineCore(build_scheduler(replace(SMALL, batching=batching)), FilledMemory(4, raises))
    requests = [
        (name, PROMPTS[2], SamplingParams(5, n=2, ignore_eos=True)) for name in ("bad", "good")
    ]
    events = run(core, requests)
    failed = [event.request_id for event in events if isinstance(event, RequestFailed)]
    assert failed == ["bad"]
    good = [event for event in events if event.request_id == "good"]
    assert [len(tokens) for tokens in answers(good).values()] == [5, 5]


def test_a_queue_that_takes_some_samples_of_a_request_takes_none() -> None:
    config = replace(SMALL, batching="static", max_model_len=12)
    core = EngineCore(build_scheduler(config), FakeExecutor())
    refusal = core.add("r", PROMPTS[2], SamplingParams(5, n=2), 0.0)
    assert refusal is not None
    assert refusal.kind == "too_long"
    assert (core.unfinished, core.scheduler.load()[1]) == (0, 0)


RUNNER_MODES = [
    replace(SMALL, kv_tokens=512, batching="continuous"),
    replace(SMALL, kv_tokens=512, batching="continuous", prefix_cache=True),
    replace(SMALL, kv_tokens=512, batching="unified"),
    replace(SMALL, kv_tokens=64, batching="unified"),
    replace(SMALL, kv_tokens=64, batching="chunked", prefix_cache=True),
    replace(SMALL, kv_tokens=512, batching="static"),
    replace(SMALL, kv_tokens=512, kv="contiguous"),
    replace(SMALL, kv_tokens=512, kv="grouped"),
]


def test_samples_have_the_tokens_of_single_requests_with_their_seeds() -> None:
    pytest.importorskip("torch")
    params = SamplingParams(8, temperature=1.0, top_p=0.9, seed=5, n=3, ignore_eos=True)
    singles = [
        (str(sample), PROMPTS[2], replace(params, n=1, seed=sample_seed(5, sample)))
        for sample in range(3)
    ]
    expected = {
        sample: _tokens(RUNNER_MODES[0], [one])[one[0], 0] for sample, one in enumerate(singles)
    }
    assert len({tuple(tokens) for tokens in expected.values()}) == 3
    for config in RUNNER_MODES:
        beside = ("other", PROMPTS[3], replace(params, seed=9, n=2))
        found = _tokens(config, [("r", PROMPTS[2], params), beside])
        assert {sample: found["r", sample] for sample in range(3)} == expected, config


def _tokens(
    config: PolicyConfig, requests: list[tuple[str, list[int], SamplingParams]]
) -> dict[tuple[str, int], list[int]]:
    core = tiny_core(config)
    return answers(run(core, requests))


HOST_MODES = [
    replace(SMALL, preemption="swap", host_kv_tokens=512),
    replace(SMALL, batching="unified", preemption="swap", host_kv_tokens=512),
    replace(SMALL, prefix_cache=True, host_cache_tokens=64),
]


@pytest.mark.parametrize("config", HOST_MODES, ids=["swap", "swap-unified", "host-tier"])
def test_samples_that_were_in_host_memory_go_on_as_they_were(config: PolicyConfig) -> None:
    pytest.importorskip("torch")
    from servetwin.engine.core.build import build_core
    from servetwin.engine.models.model_config import model_preset
    from servetwin.engine.serve_options import ServeOptions

    shape = replace(model_preset("tiny"), tie_embeddings=False)

    def found(config: PolicyConfig) -> tuple[dict[tuple[str, int], list[int]], int]:
        core, _ = build_core(ServeOptions("tiny", config, shape=shape))
        params = SamplingParams(24, temperature=1.0, seed=5, n=3, ignore_eos=True)
        tokens = answers(run(core, [("a", PROMPTS[2], params), ("b", PROMPTS[3], params)]))
        return tokens, core.stats().preemptions

    expected, preemptions = found(replace(SMALL, kv_tokens=512))
    assert preemptions == 0
    tokens, preemptions = found(config)
    assert preemptions > 0
    assert tokens == expected
