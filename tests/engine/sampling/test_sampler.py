import pytest
import torch

from servetwin.engine.sampling.sampler import draw, probabilities, sample
from servetwin.engine.sampling.sampling_params import EOS_ID, SamplingParams
from servetwin.engine.sampling.token_state import SampledRow, SeenTokens
from tests.support.sampling_reference import reference_probabilities

VOCABULARY = 300
GREEDY = SamplingParams(max_tokens=8)
MIXED = (
    SamplingParams(99, temperature=0.8, seed=5),
    SamplingParams(99, temperature=1.3, top_k=5, seed=6),
    SamplingParams(99, temperature=0.5, top_p=0.7, seed=7),
    SamplingParams(99, temperature=0.9, min_p=0.1, top_k=40, top_p=0.9, seed=8),
    SamplingParams(99, temperature=1.0, presence_penalty=1.5, frequency_penalty=-0.5, seed=9),
    SamplingParams(99, repetition_penalty=1.8),
    SamplingParams(99, temperature=1.0, logit_bias=((3, 2.5), (200, -1.0)), seed=10),
    SamplingParams(99, temperature=1.0, allowed_token_ids=(1, 2, 3, 4, 5), min_tokens=9, seed=11),
    GREEDY,
)
"""Rows as different as they can be."""


def random_logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def sampled_row(params: SamplingParams, generated_tokens: int = 0) -> SampledRow:
    return SampledRow(params, generated_tokens, params.seed or 0)


class Sequence:
    """A prompt of three tokens and what was sampled after it, from logits of its own."""

    def __init__(self, params: SamplingParams, number: int) -> None:
        self.tokens, self.params, self.number = [7, 8, 9], params, number
        self.seen = SeenTokens(self.tokens, 3) if params.has_penalties else None

    def row(self) -> SampledRow:
        seed = self.params.seed or 0
        return SampledRow(self.params, len(self.tokens) - 3, seed, self.seen)

    def logits(self) -> torch.Tensor:
        return random_logits(1, 1000 * self.number + len(self.tokens)) * 3

    def answer(self, beside: list["Sequence"]) -> list[int]:
        for _ in range(20):
            batch = [*beside, self]
            logits = torch.cat([seq.logits() for seq in batch])
            for seq, token in zip(batch, sample(logits, [seq.row() for seq in batch]), strict=True):
                seq.tokens.append(int(token))
        return self.tokens[3:]


def sequences() -> list[Sequence]:
    return [Sequence(params, number) for number, params in enumerate(MIXED)]


@pytest.mark.parametrize("place", range(len(MIXED)))
def test_a_sequence_alone_has_the_tokens_that_it_has_among_others(place: int) -> None:
    alone, among = sequences()[place], sequences()
    others = among[:place] + among[place + 1 :]
    assert alone.answer([]) == among[place].answer(others)


def test_tokens_depend_on_the_seed_and_the_position() -> None:
    params = SamplingParams(99, temperature=1.0, seed=1)
    tokens = [
        int(sample(random_logits(1), [SampledRow(params, position, seed)]))
        for seed in (1, 2)
        for position in range(20)
    ]
    assert len(set(tokens)) > 20
    assert tokens[:20] != tokens[20:]


def test_temperature_zero_takes_the_likeliest_token_of_each_row() -> None:
    logits = random_logits(5)
    logits[range(5), [3, 299, 0, 256, 17]] = 50.0
    assert sample(logits, [sampled_row(GREEDY)] * 5).tolist() == [3, 299, 0, 256, 17]


def test_a_greedy_batch_leaves_its_logits_and_calls_argmax_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("adjust", "distribution", "draw"):
        monkeypatch.setattr(f"servetwin.engine.sampling.sampler.{name}", None)
    logits = random_logits(3)
    assert sample(logits, [sampled_row(GREEDY)] * 3).tolist() == logits.argmax(-1).tolist()
    assert torch.equal(logits, random_logits(3))


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


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_end_of_a_model_that_has_several_is_masked(temperature: float) -> None:
    params = SamplingParams(8, 3, temperature, seed=1, eos_ids=(EOS_ID, 9), stop_token_ids=(4,))
    logits = torch.zeros(1, VOCABULARY)
    logits[:, 4], logits[:, EOS_ID], logits[:, 9], logits[:, 7] = 400.0, 300.0, 200.0, 100.0
    assert sample(logits.clone(), [sampled_row(params, 0)]).tolist() == [7]
    assert sample(logits.clone(), [sampled_row(params, 3)]).tolist() == [4]


CHANCES = {
    "temperature": SamplingParams(1, temperature=0.7, seed=3),
    "hot": SamplingParams(1, temperature=2.5, seed=4),
    "top_k": SamplingParams(1, temperature=1.0, top_k=5, seed=5),
    "top_p": SamplingParams(1, temperature=1.0, top_p=0.6, seed=6),
    "min_p": SamplingParams(1, temperature=1.4, min_p=0.15, seed=7),
    "all": SamplingParams(1, temperature=1.2, min_p=0.03, top_k=9, top_p=0.9, seed=8),
}


@pytest.mark.parametrize("name", CHANCES)
@pytest.mark.parametrize("varied", ["position", "seed"])
def test_draws_follow_the_exact_probabilities(name: str, varied: str) -> None:
    from scipy.stats import chisquare

    params, count = CHANCES[name], 20_000
    logits = random_logits(1)[:, :16] * 1.3
    chances = torch.from_numpy(reference_probabilities(logits[0].numpy(), params))
    rows = [
        SampledRow(params, place, 1) if varied == "position" else SampledRow(params, 0, place)
        for place in range(count)
    ]
    observed = torch.bincount(sample(logits.repeat(count, 1), rows), minlength=16).double()
    kept = chances > 0
    assert kept.sum() > 2
    assert observed[~kept].sum() == 0
    expected = chances[kept] * count
    assert expected.min() > 5
    assert chisquare(observed[kept].numpy(), expected.numpy()).pvalue > 0.001


def test_draws_of_two_streams_and_of_neighbouring_positions_are_independent() -> None:
    from scipy.stats import chi2_contingency

    params, count = SamplingParams(1, temperature=1.0, seed=1), 20_000
    weights = torch.ones(count, 6) / 6
    rows = [SampledRow(params, place, 1) for place in range(count)]
    first, other = draw(weights, rows), draw(weights, rows, stream=1)
    for one, two in ((first, other), (first[:-1], first[1:])):
        table = torch.bincount(one * 6 + two, minlength=36).view(6, 6)
        assert chi2_contingency(table.numpy()).pvalue > 0.001


def test_probabilities_are_what_sample_draws_from_and_one_for_a_greedy_row() -> None:
    rows = [seq.row() for seq in sequences()]
    logits = random_logits(len(rows))
    chances = probabilities(logits.clone(), rows)
    assert torch.allclose(chances.sum(-1), torch.ones(len(rows)))
    greedy = [place for place, row in enumerate(rows) if row.params.temperature == 0]
    assert chances[greedy].amax(-1).tolist() == [1.0] * len(greedy)
    picks = sample(logits, rows)
    assert (chances.gather(1, picks[:, None]) > 0).all()
    assert picks[greedy].tolist() == chances[greedy].argmax(-1).tolist()
    drawn = [place for place in range(len(rows)) if place not in greedy]
    again = draw(chances[drawn], [rows[place] for place in drawn])
    assert picks[drawn].tolist() == again.tolist()


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.full((200, VOCABULARY), -torch.inf)
    logits[:, [0, 5, 299]] = 0.0
    params = SamplingParams(1, temperature=1.0)
    rows = [SampledRow(params, 0, seed) for seed in range(200)]
    assert set(sample(logits, rows).tolist()) == {0, 5, 299}


@pytest.mark.parametrize("temperature", [5e-324, 1e-308, 1e-5, 1e30, 1.7e308])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e30])
def test_no_temperature_leaves_the_vocabulary(temperature: float, scale: float) -> None:
    rows = [SampledRow(params_of(temperature), 0, seed) for seed in range(50)]
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
@pytest.mark.parametrize(
    "fields", [{}, {"temperature": 0.7}, {"temperature": 0.7, "top_p": 0.5, "min_p": 0.01}]
)
def test_logits_that_are_no_numbers_leave_the_others_alone(
    value: float, fields: dict[str, float]
) -> None:
    logits = random_logits(3)
    logits[1] = value
    rows = [sampled_row(SamplingParams(1, seed=i, **fields)) for i in range(3)]  # type: ignore[arg-type]
    alone = [sample(logits[i : i + 1].clone(), [sampled_row(rows[i].params)]) for i in (0, 2)]
    tokens = sample(logits, rows)
    assert ((tokens >= 0) & (tokens < VOCABULARY)).all()
    assert [tokens[0], tokens[2]] == [int(token) for token in alone]
