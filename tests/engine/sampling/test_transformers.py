"""Draws under every processor, alone and in pairs, against the processors of transformers.

Where orders matter, the engine's is vLLM's, whose API it has: ``min_p`` comes before ``top_p``.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import pytest
import torch

from servetwin.engine.sampling.sampler import sample
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import SampledRow, SeenTokens

transformers = pytest.importorskip("transformers")

VOCABULARY, DRAWS = 24, 20_000
PROMPT, OUTPUT = [1, 2, 2, 5, 9], [3, 3, 7]
EOS = 4
ALLOWED = [0, 1, 2, 3, 4, 7, 8, 11, 13, 17, 21, 23]
BIASES = ((2, 1.5), (6, -2.0), (9, 0.75))
FIELDS: dict[str, dict[str, Any]] = {
    "allowed": {"allowed_token_ids": tuple(ALLOWED)},
    "bias": {"logit_bias": BIASES},
    "min_tokens": {"min_tokens": 5, "eos_ids": (EOS,)},
    "repetition": {"repetition_penalty": 1.4},
    "temperature": {"temperature": 1.7},
    "min_p": {"min_p": 0.12},
    "top_k": {"top_k": 9},
    "top_p": {"top_p": 0.8},
}
"""In the order in which the engine applies them."""
NAMES = tuple(FIELDS)
LAST_OF_TRANSFORMERS = "min_p"
"""It is applied after ``top_k`` and ``top_p`` by ``generate``."""
GROUPS = [
    *combinations(NAMES, 1),
    *combinations(NAMES, 2),
    ("temperature", "min_p", "top_k", "top_p"),
    ("allowed", "repetition", "temperature", "top_p"),
    NAMES,
]


def processor(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """What transformers has for a parameter of the engine."""
    made: dict[str, Callable[[], Any]] = {
        "allowed": lambda: transformers.SuppressTokensLogitsProcessor(
            [token for token in range(VOCABULARY) if token not in ALLOWED]
        ),
        "bias": lambda: transformers.SequenceBiasLogitsProcessor(
            {(token,): bias for token, bias in BIASES}
        ),
        "min_tokens": lambda: transformers.MinNewTokensLengthLogitsProcessor(len(PROMPT), 5, EOS),
        "repetition": lambda: transformers.RepetitionPenaltyLogitsProcessor(1.4),
        "temperature": lambda: transformers.TemperatureLogitsWarper(1.7),
        "min_p": lambda: transformers.MinPLogitsWarper(0.12),
        "top_k": lambda: transformers.TopKLogitsWarper(9),
        "top_p": lambda: transformers.TopPLogitsWarper(0.8),
    }
    found: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = made[name]()
    return found


def draw_logits(seed: int) -> torch.Tensor:
    return torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 1.6


def chances(logits: torch.Tensor, names: Iterable[str]) -> torch.Tensor:
    """The distribution of transformers after its processors, in the order of ``names``."""
    ids, scores = torch.tensor([PROMPT + OUTPUT]), logits.clone()
    for name in names:
        scores = processor(name)(ids, scores)
    return scores.double().softmax(-1)[0]


def draws(logits: torch.Tensor, names: Iterable[str]) -> torch.Tensor:
    """How often the engine draws each token."""
    fields: dict[str, Any] = {"temperature": 1.0}
    for name in names:
        fields |= FIELDS[name]
    params = SamplingParams(9, **fields)
    seen = SeenTokens([*PROMPT, *OUTPUT], len(PROMPT)) if params.has_penalties else None
    rows = [SampledRow(params, len(OUTPUT), seed, seen) for seed in range(DRAWS)]
    return torch.bincount(sample(logits.repeat(DRAWS, 1), rows), minlength=VOCABULARY)


def p_value(observed: torch.Tensor, expected: torch.Tensor) -> float:
    """The chi-square test's, the rarest tokens in one bin; 0 where an impossible one was drawn."""
    from scipy.stats import chisquare

    kept = expected > 0
    if observed[~kept].any():
        return 0.0
    rare = kept & (expected * DRAWS < 10)
    counts, wanted = observed[kept & ~rare].double(), expected[kept & ~rare] * DRAWS
    if rare.any():
        counts = torch.cat((counts, observed[rare].sum()[None].double()))
        wanted = torch.cat((wanted, expected[rare].sum()[None] * DRAWS))
    return float(chisquare(counts.numpy(), wanted.numpy()).pvalue) if len(counts) > 1 else 1.0


def tried(groups: Sequence[tuple[str, ...]]) -> list[Any]:
    return [pytest.param(group, id="+".join(group)) for group in groups]


@pytest.mark.parametrize("names", tried(GROUPS))
def test_draws_are_those_of_the_processors_of_transformers(names: tuple[str, ...]) -> None:
    logits = draw_logits(11)
    expected = chances(logits, names)
    assert 1 < int((expected > 0).sum()) < VOCABULARY or set(names) <= {
        "bias", "repetition", "temperature",
    }  # fmt: skip
    assert p_value(draws(logits, names), expected) > 1e-5


def test_a_wrong_processor_is_found_out() -> None:
    logits = draw_logits(11)
    for name in ("bias", "repetition", "temperature", "top_p", "min_p", "top_k", "allowed"):
        assert p_value(draws(logits, [name]), chances(logits, [])) < 1e-5, name


@pytest.mark.parametrize("names", tried([*combinations(NAMES, 2)]))
def test_only_min_p_with_top_p_depends_on_the_order_of_generate(names: tuple[str, ...]) -> None:
    """``generate`` applies ``min_p`` last; for all other pairs that is the same distribution."""
    own = [name for name in names if name != LAST_OF_TRANSFORMERS]
    own += [name for name in names if name == LAST_OF_TRANSFORMERS]
    differ = [
        seed
        for seed in range(40)
        if not torch.allclose(chances(draw_logits(seed), names), chances(draw_logits(seed), own))
    ]
    assert bool(differ) == (names == ("min_p", "top_p"))


def test_min_p_with_top_p_is_as_in_vllm_and_keeps_no_more_than_generate_does() -> None:
    """After ``min_p`` fewer tokens share the mass that ``top_p`` counts."""
    for seed in range(40):
        logits = draw_logits(seed)
        kept = draws(logits, ("min_p", "top_p")) > 0
        vllm, generate = (
            chances(logits, order) > 0 for order in (("min_p", "top_p"), ("top_p", "min_p"))
        )
        assert torch.equal(kept, vllm)
        assert not (kept & ~generate).any()
