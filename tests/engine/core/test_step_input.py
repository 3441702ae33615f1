"""The rows of a step: decodes first, and what one row of a prompt is."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.engine.core.messages import Add
from servetwin.engine.core.step_input import StepInput
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenState
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.sequence import Sequence
from tests.support.effort import examples
from tests.support.moved_keys import SMALL, plain_tokens, random_requests, serve

SCHEDULERS = ["continuous", "chunked", "prefill-first"]
VIDUR = replace(SMALL, kv_tokens=64, recompute="computed", one_row_chunk="prefill")


def one_row_batch() -> Batch:
    """A decode, the last row of a prompt, and a chunk."""
    decodes = Lockstep(4)
    sequences = [Sequence(name, 0.0, 8, 4) for name in "abc"]
    sequences[0].base_computed_tokens, sequences[0].base_generated_tokens = 8, 1
    decodes.join(sequences[0])
    chunks = [
        ScheduledSequence(sequences[1], 7, 1, True),
        ScheduledSequence(sequences[2], 0, 3, False),
    ]
    return Batch(chunks, decodes)


def names(step: StepInput) -> list[str]:
    return [entry.seq.request_id for entry in step.entries]


def test_one_row_of_a_prompt_is_a_decode_or_a_chunk_as_the_batch_says() -> None:
    states = {name: TokenState(list(range(10, 20)), SamplingParams(1)) for name in "abc"}
    batch = one_row_batch()
    step = StepInput.of(batch, states)
    assert (names(step), step.decodes) == (["a", "b", "c"], 2)
    batch.one_row_prefills = True
    step = StepInput.of(batch, states)
    assert (names(step), step.decodes) == (["a", "b", "c"], 1)
    assert step.sampled_rows == [0, 1]
    assert len(batch.shape().prefill_chunks) == len(step.entries) - step.decodes


def test_a_prompt_preempted_in_its_middle_goes_on_with_its_own_tokens() -> None:
    """``b`` of the story in the documentation is fed its prompt one token a step."""
    config = replace(
        SMALL, batching="chunked", kv_tokens=16, max_model_len=16, max_seqs=4, token_budget=4,
        recompute="computed",
    )  # fmt: skip
    params = SamplingParams(7, ignore_eos=True), SamplingParams(2, ignore_eos=True)
    requests = [
        (0.0, Add("a", list(range(300, 303)), params[0])),
        (0.0, Add("b", list(range(400, 411)), params[1])),
    ]
    served = serve(config, requests)
    assert ["b"] in [record.preempted for record in served.log.records]
    fed = [entry for record in served.log.records for entry in record.entries if entry[0] == "b"]
    assert [(start, tokens) for _, start, tokens, _ in fed] == [
        *((0, 1), (1, 3), (0, 3), (3, 1), (4, 1), (0, 4), (4, 2)),
        *((start, 1) for start in range(6, 12)),
    ]
    assert served.tokens == plain_tokens(requests)
    assert len(served.tokens["b"]) == 2
    assert served.replayed(config).identical


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 10_000), batching=st.sampled_from(SCHEDULERS), admit=st.booleans())
def test_the_rules_of_another_simulator_change_no_token(
    seed: int, batching: str, admit: bool
) -> None:
    config = replace(VIDUR, batching=batching, admit_after_preemption=admit, prompt_blocks="chunk")
    requests = random_requests(seed)
    served = serve(config, requests)
    assert served.failures == []
    assert served.tokens == plain_tokens(requests)
    assert served.replayed(config).identical
