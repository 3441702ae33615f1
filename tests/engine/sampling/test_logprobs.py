"""Logprobs are those of the logits as the model gave them."""

import numpy as np
import pytest
import torch

from servetwin.engine.sampling.sampler import new_tokens, token_logprobs
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import SampledRow


def reference(logits: torch.Tensor) -> torch.Tensor:
    wide = logits.double().numpy()
    shifted = wide - wide.max()
    return torch.from_numpy(shifted - np.log(np.exp(shifted).sum()))


def random_logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, 50, generator=torch.Generator().manual_seed(1)) * 3


def test_each_row_has_its_token_and_its_likeliest() -> None:
    logits = random_logits(4)
    said = token_logprobs(logits, [3, 49, 0, 7], [2, 0, 50, 99])
    for row, token, top, one in zip(logits, [3, 49, 0, 7], [2, 0, 50, 50], said, strict=True):
        exact = reference(row)
        assert one.chosen == pytest.approx(float(exact[token]), abs=1e-5)
        assert [place for place, _ in one.top] == exact.argsort(descending=True)[:top].tolist()
        for place, logprob in one.top:
            assert logprob == pytest.approx(float(exact[place]), abs=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_logprob_of_a_sampled_token_is_the_raw_log_softmax(temperature: float) -> None:
    """Whatever changed its chances: bias, penalty, temperature, filter."""
    changed = SamplingParams(
        9, 5, temperature, top_k=3, logit_bias=((5, 40.0),), logprobs=1, eos_ids=(4,)
    )
    plain = SamplingParams(9, temperature=temperature)
    logits = random_logits(3)
    rows = [SampledRow(params, 0, 2) for params in (changed, plain, changed)]
    tokens = new_tokens(logits.clone(), rows)
    assert tokens[1].logprobs is None
    for row, token in ((logits[0], tokens[0]), (logits[2], tokens[2])):
        assert token.logprobs is not None
        assert token.token_id == 5
        assert token.logprobs.chosen == pytest.approx(float(reference(row)[5]), abs=1e-5)
        assert token.logprobs.top[0][0] == int(row.argmax())


def test_wanting_logprobs_changes_no_token() -> None:
    with_them = [SampledRow(SamplingParams(9, temperature=1.0, logprobs=3), i, 7) for i in range(9)]
    without = [SampledRow(SamplingParams(9, temperature=1.0), i, 7) for i in range(9)]
    ids = [[token.token_id for token in new_tokens(random_logits(9), rows)]
           for rows in (with_them, without)]  # fmt: skip
    assert ids[0] == ids[1]
