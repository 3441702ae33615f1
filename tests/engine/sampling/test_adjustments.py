"""Bans, biases and penalties against a plain reference."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.sampling.distribution import adjust
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import SampledRow, SeenTokens
from tests.support.sampling_reference import reference_logits

PROMPT, OUTPUT = [1, 2, 2, 5], [2, 3, 3, 3]
LOGITS = [1.0, -1.0, 2.0, 0.5, -3.0, 4.0, 0.0, 7.0]
BASE = SamplingParams(9, eos_ids=(7,))


def row_of(params: SamplingParams, output: list[int], drafted: int = 0) -> SampledRow:
    """A row of a sequence of which the last ``drafted`` tokens are only drafted."""
    own = output[: len(output) - drafted]
    seen = SeenTokens([*PROMPT, *own], len(PROMPT)) if params.has_penalties else None
    return SampledRow(params, len(output), 0, seen, tuple(output[len(own) :]))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"repetition_penalty": 2.0}, {1: -2.0, 2: 1.0, 3: 0.25, 5: 2.0}),
        ({"frequency_penalty": 0.5}, {2: 1.5, 3: -1.0}),
        ({"presence_penalty": -1.0}, {2: 3.0, 3: 1.5}),
        ({"repetition_penalty": 0.5, "presence_penalty": 2.0}, {1: -0.5, 2: 2.0, 3: -1.0, 5: 8.0}),
        ({"logit_bias": ((0, -100.0), (6, 3.5))}, {0: -99.0, 6: 3.5}),
        ({"min_tokens": 5}, {7: -np.inf}),
        ({"min_tokens": 5, "stop_token_ids": (0, 6)}, dict.fromkeys((0, 6, 7), -np.inf)),
        ({"min_tokens": 4, "stop_token_ids": (0, 6)}, {}),
        ({"allowed_token_ids": (2, 7)}, dict.fromkeys((0, 1, 3, 4, 5, 6), -np.inf)),
        (
            {"allowed_token_ids": (2, 7), "logit_bias": ((0, 9.0), (2, 1.0))},
            {**dict.fromkeys((0, 1, 3, 4, 5, 6), -np.inf), 2: 3.0},
        ),
    ],
)
def test_each_parameter_changes_the_logits_that_it_names(
    fields: dict[str, float], expected: dict[int, float]
) -> None:
    params = replace(BASE, **fields)  # type: ignore[arg-type]
    logits = torch.tensor([LOGITS, LOGITS])
    adjust(logits, [row_of(BASE, OUTPUT), row_of(params, OUTPUT)])
    assert logits[0].tolist() == LOGITS
    assert logits[1].tolist() == [expected.get(token, was) for token, was in enumerate(LOGITS)]
    assert logits[1].tolist() == list(reference_logits(LOGITS, params, PROMPT, OUTPUT))


TOKENS = st.integers(0, 19)
PARAMS = st.builds(
    SamplingParams,
    max_tokens=st.just(9),
    min_tokens=st.integers(0, 9),
    eos_ids=st.just((19,)),
    stop_token_ids=st.lists(TOKENS, max_size=2).map(tuple),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.7]),
    frequency_penalty=st.sampled_from([0.0, -2.0, 0.3]),
    presence_penalty=st.sampled_from([0.0, -0.7, 2.0]),
    logit_bias=st.dictionaries(TOKENS, st.floats(-100, 100), max_size=4).map(
        lambda biases: tuple(biases.items())
    ),
    allowed_token_ids=st.lists(TOKENS, max_size=3, unique=True).map(tuple),
)
CASES = st.lists(
    st.tuples(PARAMS, st.lists(TOKENS, max_size=8), st.integers(0, 3)), min_size=1, max_size=5
)


@given(cases=CASES, seed=st.integers(0, 99))
def test_any_mix_of_rows_has_the_reference_s_logits(
    cases: list[tuple[SamplingParams, list[int], int]], seed: int
) -> None:
    logits = torch.randn(len(cases), 20, generator=torch.Generator().manual_seed(seed)) * 4
    before = logits.numpy().copy()
    adjust(logits, [row_of(params, output, drafted) for params, output, drafted in cases])
    for row, was, (params, output, _) in zip(logits, before, cases, strict=True):
        expected = reference_logits(was, params, PROMPT, output)
        assert np.allclose(row.numpy(), expected, atol=1e-4)
