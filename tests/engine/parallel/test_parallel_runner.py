"""Two ranks compute what one does."""

import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from servetwin.engine.core.build import build_core
from servetwin.engine.core.step_isolation import ExecutorLost
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import model_preset
from servetwin.engine.parallel.parallel_runner import ParallelRunner
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.timed_requests import TimedRequest, run_requests

POLICIES = PolicyConfig(kv_tokens=512, max_seqs=3, token_budget=16, max_model_len=128)
MODEL = replace(model_preset("tiny"), tie_embeddings=False, qkv_bias=True)
ONE = ServeOptions(shape=MODEL, policies=POLICIES, computation=Computation(device="cpu"))
TWO = replace(ONE, computation=Computation(device="cpu", tensor_parallel=2))
REQUESTS: list[TimedRequest] = [
    (0.0, f"r{k}", list(range(300 + k, 320 + 3 * k)), SamplingParams(12, ignore_eos=True))
    for k in range(5)
]


@pytest.fixture(scope="module")
def two() -> Iterator[Any]:
    core, facts = build_core(TWO)
    yield core, facts
    assert isinstance(core.executor, ParallelRunner)
    core.executor.close()


def tokens(core: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in run_requests(core, REQUESTS):
        found.setdefault(event.request_id, []).append(event.token_id)
    return found


@pytest.mark.slow
def test_two_ranks_yield_the_tokens_of_one(two: Any) -> None:
    core, facts = two
    assert facts["runner"]["tensor_parallel"] == 2
    alone, alone_facts = build_core(ONE)
    assert tokens(core) == tokens(alone)
    assert facts["runner"]["kv_bytes"] == alone_facts["runner"]["kv_bytes"] // 2


def test_ranks_meet_at_a_file_that_stays_until_they_end(two: Any) -> None:
    """A rank that is late reads the addresses of the others after rank 0 has met it."""
    folder = two[0].executor._followers._folder
    assert [path.name for path in folder.iterdir()] == ["meeting"]


def test_answers_to_one_prompt_are_copied_on_every_rank(two: Any) -> None:
    """The prompt ends within a block, of which each answer goes on in a copy."""
    params = SamplingParams(9, temperature=1.0, seed=5, n=3, ignore_eos=True)
    found = []
    for core in (two[0], build_core(ONE)[0]):
        answers: dict[int, list[int]] = {}
        for event in run_requests(core, [(0.0, "r", list(range(300, 321)), params)]):
            answers.setdefault(event.sample, []).append(event.token_id)
        found.append(answers)
    assert found[0] == found[1]
    assert len({tuple(tokens) for tokens in found[0].values()}) == 3


def test_logits_differ_by_rounding_alone(two: Any) -> None:
    from servetwin.engine.sampling.token_state import token_state
    from servetwin.policies.batch import Batch, ScheduledSequence
    from servetwin.policies.sequence import Sequence

    seq = Sequence("a", 0.0, 30, 4)
    seq.blocks = [3, 1]
    states = {"a": token_state(list(range(300, 330)), SamplingParams(4))}
    batch = Batch([ScheduledSequence(seq, 0, 30, yields_token=True)])
    shared = two[0].executor.logits(batch, states)
    alone = build_core(ONE)[0].executor.logits(batch, states)  # type: ignore[attr-defined]
    torch.testing.assert_close(shared, alone, rtol=0, atol=1e-5)


def test_a_model_that_cannot_be_divided_starts_nothing() -> None:
    with pytest.raises(EngineError, match="3 ranks do not divide the heads 4"):
        build_core(replace(TWO, computation=Computation(tensor_parallel=3)))


def test_ranks_have_no_host_memory() -> None:
    with pytest.raises(EngineError, match="2 ranks move no keys and values to host memory"):
        build_core(replace(TWO, policies=replace(POLICIES, preemption="swap", host_kv_tokens=64)))


def test_a_rank_that_dies_ends_the_executor(two: Any) -> None:
    core, _ = two
    runner = core.executor
    assert isinstance(runner, ParallelRunner)
    for process in multiprocessing.active_children():
        process.kill()
        process.join()
    core.add("a", [300, 301], SamplingParams(4), 0.0)
    with pytest.raises(ExecutorLost, match="a rank of tensor parallelism failed"):
        core.step(0.0)
