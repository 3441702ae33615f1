"""Without a KV cache each step computes the whole contexts anew: equal tokens, more rows."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.engine.core.messages import Add
from servetwin.engine.core.runner import Runner
from servetwin.engine.core.step_input import StepInput, from_the_beginning
from servetwin.engine.models.computation import Computation
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenState, token_state
from servetwin.policies.batch import Batch, BatchShape, ScheduledSequence
from servetwin.policies.sequence import Sequence
from servetwin.sim.step_times.step_time import decode_contexts
from tests.support.effort import examples
from tests.support.engine_oracle import CONFIG, NEW_TOKENS, PROMPTS, ask_transformers, draw_weights
from tests.support.moved_keys import SMALL, plain_tokens, random_requests, serve

UNCACHED = Computation(kv_cache=False)
SCHEDULERS = ["static", "insertion", "continuous", "chunked", "prefill-first", "unified"]


@pytest.mark.parametrize("batching", SCHEDULERS)
def test_no_scheduler_gives_other_tokens_without_a_cache(batching: str) -> None:
    kv = "contiguous" if batching == "insertion" else "paged"
    config = replace(SMALL, batching=batching, kv=kv, kv_tokens=512)
    requests = random_requests(8)
    served = serve(config, requests, UNCACHED)
    assert served.failures == []
    assert served.tokens == plain_tokens(requests)
    assert served.replayed(config).identical
    store = served.runner.store
    assert served.runner.describe()["kv_cache"] is False
    assert served.runner.describe()["kv_bytes"] == 0
    assert store.tokens == 1
    assert store.keys.isnan().all(), "nothing is stored"


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    batching=st.sampled_from(SCHEDULERS),
    prefix_cache=st.booleans(),
    kv_tokens=st.sampled_from([64, 512]),
)
def test_random_loads_run_without_a_cache(
    seed: int, batching: str, prefix_cache: bool, kv_tokens: int
) -> None:
    """Whatever is preempted, shared or cut in chunks."""
    config = replace(SMALL, batching=batching, prefix_cache=prefix_cache, kv_tokens=kv_tokens)
    requests = random_requests(seed, count=5, shared_tokens=9)
    served = serve(config, requests, UNCACHED)
    assert served.tokens == plain_tokens(requests)
    assert served.replayed(config).identical


def test_samples_of_a_prompt_need_no_cache() -> None:
    requests = random_requests(3, count=3, samples=3)
    served = serve(replace(SMALL, kv_tokens=512), requests, UNCACHED)
    assert served.failures == []
    assert served.tokens == plain_tokens(requests)


def test_a_step_computes_the_rows_that_the_simulator_foresees() -> None:
    """Every pass is a prompt as long as the context: those of finished members and paddings too."""
    a, b, c = (Sequence(name, 0.0, 5, 9) for name in "abc")
    entries = [
        ScheduledSequence(a, 6, 1, True),
        ScheduledSequence(b, 2, 3, True, padding=2),
        ScheduledSequence(c, 7, 0, False, padding=1),
    ]
    states = {name: TokenState(list(range(12)), SamplingParams(1)) for name in "abc"}
    step = StepInput.of(Batch(entries), states, kv_cache=False)
    assert [(e.start, e.tokens, e.padding) for e in step.entries] == [
        (0, 7, 0),
        (0, 5, 2),
        (0, 0, 8),
    ]
    assert step.positions == [*range(7), *range(7), *range(8)]
    assert step.token_ids == [*range(7), *range(5), 0, 0, *[0] * 8]
    assert step.sampled_rows == [6, 11]
    assert step.decodes == 0
    shape: BatchShape = Batch(entries).shape()
    contexts = decode_contexts(Batch(entries))
    rows = [*contexts, *(start + rows for start, rows in shape.prefill_chunks)]
    assert sorted(rows) == sorted(e.rows for e in step.entries)


@pytest.mark.slow
def test_its_tokens_are_those_of_transformers() -> None:
    oracle = ask_transformers(draw_weights())
    runner = Runner(CONFIG, UNCACHED, layout="paged", kv_tokens=64, weight_std=0.06)
    for prompt, tokens, logits in zip(PROMPTS, oracle.tokens, oracle.logits, strict=True):
        seq = Sequence("s", 0.0, len(prompt), NEW_TOKENS)
        last = ScheduledSequence(seq, len(prompt) + NEW_TOKENS - 2, 1, True)
        known = {"s": token_state([*prompt, *tokens], SamplingParams(NEW_TOKENS))}
        found = runner.logits(Batch([last]), known)
        assert (found - logits[-1]).abs().max() <= 1e-4


def test_an_ended_sequence_is_a_prompt_of_padding() -> None:
    ended = from_the_beginning(ScheduledSequence(Sequence("a", 0.0, 1, 1), 4, 0, False, 1))
    assert (ended.start, ended.tokens, ended.padding) == (0, 0, 5)


def test_one_request_computes_its_context_again_for_each_token() -> None:
    requests = [(0.0, Add("a", list(range(300, 310)), SamplingParams(4, ignore_eos=True)))]
    served = serve(replace(SMALL, max_seqs=1), requests, UNCACHED)
    assert served.computed_rows == [10, 11, 12, 13]
    assert serve(replace(SMALL, max_seqs=1), requests).computed_rows == [10, 1, 1, 1]
