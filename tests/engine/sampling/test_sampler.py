import pytest
import torch

from engine.sampling.sampler import SampledRow, random_generator, sample
from engine.sampling.sampling_params import EOS_ID, SamplingParams

VOCABULARY = 300
GREEDY = SamplingParams(max_tokens=8)


def random_logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def sampled_row(params: SamplingParams, generated_tokens: int = 0) -> SampledRow:
    return SampledRow(params, generated_tokens, random_generator(params))


def test_temperature_zero_takes_the_likeliest_token_of_each_row() -> None:
    logits = random_logits(5)
    logits[range(5), [3, 299, 0, 256, 17]] = 50.0
    assert sample(logits, [sampled_row(GREEDY)] * 5).tolist() == [3, 299, 0, 256, 17]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("ignore_eos", [False, True])
@pytest.mark.parametrize(
    ("min_tokens", "generated_tokens", "token"), [(0, 0, EOS_ID), (3, 2, 7), (3, 3, EOS_ID)]
)
def test_end_of_sequence_is_masked_until_the_minimum_is_out(
    temperature: float, ignore_eos: bool, min_tokens: int, generated_tokens: int, token: int
) -> None:
    params = SamplingParams(8, min_tokens, temperature, seed=1, ignore_eos=ignore_eos)
    logits = torch.zeros(2, VOCABULARY)
    logits[:, EOS_ID], logits[:, 7] = 200.0, 100.0
    rows = [sampled_row(GREEDY), sampled_row(params, generated_tokens)]
    assert sample(logits, rows).tolist() == [EOS_ID, token]


def test_a_model_may_have_several_ends_of_sequence_and_a_request_its_own() -> None:
    logits = torch.zeros(3, VOCABULARY)
    logits[:, 9], logits[:, 11], logits[:, 7] = 300.0, 200.0, 100.0
    rows = [
        sampled_row(SamplingParams(8, min_tokens=3, eos_ids=(9, 11))),
        sampled_row(SamplingParams(8, min_tokens=3, eos_ids=(9,))),
        sampled_row(SamplingParams(8, min_tokens=3, eos_ids=())),
    ]
    assert sample(logits, rows).tolist() == [7, 11, 9]


def draws(seed: int, companions: int) -> list[int]:
    """Twenty tokens of one seeded sequence beside others that also draw."""
    params = SamplingParams(max_tokens=20, temperature=0.8, seed=seed)
    others = [sampled_row(SamplingParams(20, temperature=1.5, seed=9)) for _ in range(companions)]
    row, tokens = sampled_row(params), []
    for step in range(20):
        logits = torch.cat([random_logits(companions, 99), random_logits(1, step)])
        tokens.append(int(sample(logits, [*others, row])[-1]))
    return tokens


def test_a_seed_gives_the_same_tokens_in_every_batch() -> None:
    assert draws(seed=5, companions=0) == draws(seed=5, companions=3)
    assert draws(seed=5, companions=0) != draws(seed=6, companions=0)


def test_no_seed_is_a_new_seed_each_time() -> None:
    seeds = {random_generator(SamplingParams(1, temperature=1.0)).initial_seed() for _ in range(2)}  # type: ignore[union-attr]
    assert len(seeds) == 2
    assert random_generator(GREEDY) is None


def test_draws_follow_the_softmax_at_the_temperature() -> None:
    from scipy.stats import chisquare

    logits, temperature, count = random_logits(1)[:, :16], 0.7, 20_000
    row = sampled_row(SamplingParams(1, temperature=temperature, seed=3))
    tokens = sample(logits.repeat(count, 1), [row] * count)
    expected = (logits[0].double() / temperature).softmax(0) * count
    assert expected.min() > 5
    observed = torch.bincount(tokens, minlength=16).double()
    assert chisquare(observed.numpy(), expected.numpy()).pvalue > 0.001


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.full((200, VOCABULARY), -torch.inf)
    logits[:, [0, 5, 299]] = 0.0
    row = sampled_row(SamplingParams(1, temperature=1.0, seed=0))
    assert set(sample(logits, [row] * 200).tolist()) == {0, 5, 299}


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 2), (1 - 2**-53, 290)])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_the_extreme_draws_are_the_first_and_the_last_possible_token(
    monkeypatch: pytest.MonkeyPatch, uniform: float, token: int, temperature: float
) -> None:
    monkeypatch.setattr("engine.sampling.sampler._uniform", lambda generator: uniform)
    logits = random_logits(20)
    logits[:, :2] = logits[:, 291:] = -torch.inf
    row = sampled_row(SamplingParams(1, temperature=temperature))
    assert sample(logits, [row] * 20).tolist() == [token] * 20


@pytest.mark.parametrize("temperature", [5e-324, 1e-308, 1e-5, 1e30, 1.7e308])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e30])
def test_no_temperature_leaves_the_vocabulary(temperature: float, scale: float) -> None:
    rows = [SampledRow(params_of(temperature), 0, torch.Generator()) for _ in range(50)]
    tokens = sample(random_logits(50) * scale, rows)
    assert ((tokens >= 0) & (tokens < VOCABULARY)).all()


def params_of(temperature: float) -> SamplingParams:
    """Any temperature, also one that a request may not have."""
    params = SamplingParams(1, temperature=1.0)
    object.__setattr__(params, "temperature", temperature)
    return params


def test_the_lowest_temperature_draws_the_likeliest_token() -> None:
    logits = random_logits(20)
    row = sampled_row(SamplingParams(1, temperature=1e-5))
    assert sample(logits.clone(), [row] * 20).tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_logits_that_are_no_numbers_leave_the_others_alone(
    value: float, temperature: float
) -> None:
    logits = random_logits(3)
    logits[1] = value
    rows = [sampled_row(SamplingParams(1, temperature=temperature, seed=i)) for i in range(3)]
    alone = [sample(logits[i : i + 1].clone(), [sampled_row(rows[i].params)]) for i in (0, 2)]
    tokens = sample(logits, rows)
    assert ((tokens >= 0) & (tokens < VOCABULARY)).all()
    assert [tokens[0], tokens[2]] == [int(token) for token in alone]
