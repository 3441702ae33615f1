"""Temperature, min_p, top_k and top_p against a plain reference."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.sampling.distribution import distribution
from servetwin.engine.sampling.sampling_params import SamplingParams
from tests.support.sampling_reference import reference_probabilities

LOGITS = [2.0, 1.0, 0.0, -1.0, -3.0, -2.0]
"""Their softmax is 0.634, 0.233, 0.086, 0.032, 0.004, 0.012."""


def params(**fields: float) -> SamplingParams:
    return SamplingParams(1, **{"temperature": 1.0, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, 6),
        ({"top_k": 1}, 1),
        ({"top_k": 3}, 3),
        ({"top_k": 600}, 6),
        ({"top_p": 0.5}, 1),
        ({"top_p": 0.64}, 2),
        ({"top_p": 0.9}, 3),
        ({"top_p": 1e-9}, 1),
        ({"top_p": 0.9, "temperature": 4.0}, 5),
        ({"min_p": 0.2}, 2),
        ({"min_p": 0.3, "temperature": 4.0}, 5),
        ({"min_p": 1.0}, 1),
        ({"top_k": 2, "top_p": 0.73}, 1),
        ({"top_k": 3, "top_p": 0.73}, 2),
        ({"min_p": 0.2, "top_p": 0.73}, 1),
    ],
)
def test_each_filter_keeps_the_likeliest_tokens(fields: dict[str, float], kept: int) -> None:
    logits = torch.tensor([LOGITS])
    chances = distribution(logits, [params(**fields)])[0]
    assert int((chances > 0).sum()) == kept
    expected = reference_probabilities(LOGITS, params(**fields))
    assert np.allclose(chances.numpy(), expected, atol=1e-6)


def test_equal_logits_stay_together() -> None:
    logits = torch.tensor([[1.0, 0.0, 0.0, 0.0, -9.0]])
    for fields in ({"top_k": 2}, {"top_p": 0.6}):
        assert (distribution(logits, [params(**fields)])[0] > 0).tolist() == [True] * 4 + [False]


FIELDS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.2, 1.0, 3.0]),
        "top_k": st.sampled_from([0, 1, 4, 40, 1000]),
        "top_p": st.sampled_from([1.0, 0.95, 0.5, 0.01]),
        "min_p": st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    }
)


@given(rows=st.lists(FIELDS, min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_rows_of_any_mix_have_the_reference_s_probabilities(
    rows: list[dict[str, float]], seed: int
) -> None:
    logits = torch.randn(len(rows), 97, generator=torch.Generator().manual_seed(seed)) * 3
    chances = distribution(logits, [params(**fields) for fields in rows])
    for own, row, fields in zip(chances, logits, rows, strict=True):
        expected = reference_probabilities(row.numpy(), params(**fields))
        assert np.allclose(own.numpy(), expected, atol=1e-5)
        alone = distribution(row[None], [params(**fields)])
        assert torch.equal(own, alone[0])
