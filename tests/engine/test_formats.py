"""Quantised models against the float32 oracle: exact for what they hold, near by theory."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from servetwin.engine.core.build import build_core
from servetwin.engine.core.messages import TokenEvent
from servetwin.engine.core.runner import Runner
from servetwin.engine.formats.rounded_weights import Int4Weight, Int8Weight
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.tensor_layout import parameters
from servetwin.engine.models.weights import LayerWeights, Weights
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenState
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence
from servetwin.sim.step_times.roofline.formats import Grid, sqnr_db
from tests.support.engine_oracle import (
    CONFIG,
    NEW_TOKENS,
    PROMPT_TOKENS,
    PROMPTS,
    SHARED_TOKENS,
    STD,
    Oracle,
    ask_transformers,
    draw_weights,
)

BLOCK_TOKENS, GROUP = 16, 32
TOTAL_TOKENS = PROMPT_TOKENS + NEW_TOKENS - 1
WHOLE, CHUNKS = (0, PROMPT_TOKENS), (0, 7, 14, 21, 28, 35, PROMPT_TOKENS)
MATRICES = 7 * CONFIG.layers + 1
"""Of queries, keys, values, output, gate, up and down; and the head."""
ROUNDED_WEIGHTS = {
    "int8": Grid("integer", 8, CONFIG.hidden_size),
    "int4": Grid("affine", 4, GROUP),
}


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return ask_transformers(draw_weights())


def runner(**options: object) -> Runner:
    computation = Computation(device="cpu", weight_group=GROUP, **options)  # type: ignore[arg-type]
    return Runner(CONFIG, computation, layout="paged", kv_tokens=1024, weight_std=STD)


def forced_logits(
    engine: Runner, oracle: Oracle, steps: tuple[int, ...] = WHOLE, *, alone: bool = False
) -> torch.Tensor:
    """Logits [prompt, new token, vocabulary] where all tokens are those of the oracle."""
    states = {
        str(index): TokenState(prompt + tokens, SamplingParams(NEW_TOKENS))
        for index, (prompt, tokens) in enumerate(zip(PROMPTS, oracle.tokens, strict=True))
    }
    blocks = -(-TOTAL_TOKENS // BLOCK_TOKENS)
    seqs = [Sequence(name, 0.0, PROMPT_TOKENS, NEW_TOKENS) for name in states]
    for index, seq in enumerate(seqs):
        seq.blocks = list(range(index * blocks, (index + 1) * blocks))
    groups = [[seq] for seq in seqs] if alone else [seqs]
    ends = (*steps, *range(PROMPT_TOKENS + 1, TOTAL_TOKENS + 1))
    return torch.cat([_rows(engine, group, states, ends) for group in groups])


def _rows(
    engine: Runner, seqs: list[Sequence], states: dict[str, TokenState], ends: tuple[int, ...]
) -> torch.Tensor:
    found = []
    for start, end in pairwise(ends):
        samples = end >= PROMPT_TOKENS
        batch = Batch([ScheduledSequence(seq, start, end - start, samples) for seq in seqs])
        logits = engine.logits(batch, states)
        if samples:
            found.append(logits)
    return torch.stack(found, 1)


def noise_of(logits: torch.Tensor, oracle: Oracle) -> float:
    """Power of the error over the power of the logits."""
    return float((logits - oracle.logits).square().mean() / oracle.logits.square().mean())


def power(grid: Grid) -> float:
    return 10 ** (-sqnr_db(grid) / 10)


def restored(weights: Weights, name: str) -> Weights:
    """Weights with every matrix of a product rounded as the format does, in float32."""

    def matrix(weight: torch.Tensor) -> torch.Tensor:
        rounded = Int8Weight.of(weight) if name == "int8" else Int4Weight.of(weight, GROUP)
        return rounded.restored()

    def layer(of: LayerWeights) -> LayerWeights:
        return {name: matrix(one) if one.dim() == 2 else one for name, one in of.items()}

    return replace(weights, layers=[layer(of) for of in weights.layers], head=matrix(weights.head))


@pytest.mark.parametrize("prepack", [True, False], ids=["fastest", "reference"])
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_weights_in_few_bits_are_transformers_with_the_restored_weights(
    name: str, prepack: bool
) -> None:
    exact = ask_transformers(restored(draw_weights(), name))
    logits = forced_logits(runner(weight_format=name, prepack=prepack), exact)
    assert (logits - exact.logits).abs().max() <= 1e-4
    assert torch.equal(logits.argmax(-1), torch.tensor(exact.tokens))


OPTIONS = {
    "int8": {"weight_format": "int8"},
    "int4": {"weight_format": "int4"},
    "w8a8": {"weight_format": "w8a8"},
    "kv int8": {"kv_format": "int8"},
}


def most_noise(name: str) -> float:
    """Return the noise of all roundings on the way added up, as if each reached the logits."""
    if name == "kv int8":
        return 2 * CONFIG.layers * power(Grid("integer", 8, CONFIG.head_dim))
    rows = power(Grid("integer", 8, CONFIG.ffn_size)) if name == "w8a8" else 0.0
    return MATRICES * (power(ROUNDED_WEIGHTS.get(name, ROUNDED_WEIGHTS["int8"])) + rows)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_error_of_the_logits_is_within_what_the_roundings_add_up_to(
    oracle: Oracle, name: str
) -> None:
    logits = forced_logits(runner(**OPTIONS[name]), oracle)
    noise, most = noise_of(logits, oracle), most_noise(name)
    error = (logits - oracle.logits).abs().max()
    said = f"{name}: noise {noise:.1e} of at most {most:.1e}, largest error {error:.3f}"
    print(said)  # noqa: T201
    assert most / 20 < noise < most, said
    best = oracle.logits.topk(2, -1)
    clear = best.values[..., 0] - best.values[..., 1] > 2 * error
    assert clear.sum() > 20 or name == "int4"
    assert torch.equal(logits.argmax(-1)[clear], best.indices[..., 0][clear])


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("int8", "auto"), ("int4", "auto"), ("w8a8", "auto"),
        ("kv int8", "native"), ("kv int8", "per-sequence"),
    ],
)  # fmt: skip
def test_chunks_and_batches_change_next_to_nothing(
    oracle: Oracle, name: str, attention: str
) -> None:
    """All modes round the same numbers; a few may lie between two codes."""
    engine = runner(**OPTIONS[name], attention=attention)
    whole = forced_logits(engine, oracle)
    noise = (whole - oracle.logits).square().mean()
    for steps, alone in ((CHUNKS, False), (WHOLE, True), (CHUNKS, True)):
        other = forced_logits(engine, oracle, steps, alone=alone)
        assert (other - whole).square().mean() < 0.01 * noise


def test_prompts_share_rounded_keys_and_values(oracle: Oracle) -> None:
    engine = runner(kv_format="int8")
    states = {
        str(index): TokenState(PROMPTS[index], SamplingParams(NEW_TOKENS)) for index in (0, 1)
    }
    first, second = (Sequence(name, 0.0, PROMPT_TOKENS, NEW_TOKENS) for name in states)
    first.blocks, second.blocks = [0, 1, 2], [10, 11, 12]
    batch = Batch([ScheduledSequence(seq, 0, PROMPT_TOKENS, True) for seq in (first, second)])
    unshared = engine.logits(batch, states)[1]
    second.blocks = [0, 1, 20]
    rest = ScheduledSequence(second, SHARED_TOKENS, PROMPT_TOKENS - SHARED_TOKENS, True)
    noise = noise_of(forced_logits(engine, oracle), oracle)
    shared = engine.logits(Batch([rest]), states)[0]
    assert (shared - unshared).square().mean() < 0.01 * noise * unshared.square().mean()


@pytest.mark.parametrize(("name", "weight_bytes"), [("int8", 1.0), ("int4", 0.5 + 4 / GROUP)])
def test_the_runner_says_what_is_stored_and_how_large_it_is(name: str, weight_bytes: float) -> None:
    facts = runner(weight_format=name, kv_format="int8").describe()
    matrices = parameters(CONFIG) - CONFIG.hidden_size * (CONFIG.vocab_size + 2 * CONFIG.layers + 1)
    outputs = CONFIG.vocab_size + CONFIG.layers * (2 * CONFIG.hidden_size + 2 * CONFIG.ffn_size)
    outputs += CONFIG.layers * CONFIG.head_dim * (CONFIG.heads + 2 * CONFIG.kv_heads)
    scale_bytes = 4 * outputs if name == "int8" else 0
    assert facts["weight_bytes"] == weight_bytes * matrices + scale_bytes
    assert facts["kv_bytes"] == 1024 * CONFIG.kv_bytes_per_token(1) * (1 + 4 / CONFIG.head_dim)
    assert (facts["weight_format"], facts["kv_format"]) == (name, "int8")


def answers(policies: PolicyConfig, how: Computation) -> tuple[dict[str, list[int]], int]:
    """Tokens of six prompts that share 32 tokens, and how many sequences were preempted."""
    core, _ = build_core(ServeOptions("tiny", policies, computation=how))
    found: dict[str, list[int]] = {}
    for index in range(6):
        prompt = [3 + 7 * place % 500 for place in range(32)] + [40 + index] * 20
        params = SamplingParams(40, ignore_eos=True, temperature=0.9, seed=index)
        core.add(str(index), prompt, params, 0.0)
    while core.unfinished:
        for output in core.step(core.clock()) or ():
            assert isinstance(output, TokenEvent)
            found.setdefault(output.request_id, []).append(output.token_id)
    return found, core.stats().preemptions


@pytest.mark.parametrize("weight_format", ["int4", "w8a8"])
def test_preemption_swapping_and_sharing_change_no_token(weight_format: str) -> None:
    how = Computation("cpu", weight_format=weight_format, kv_format="int8")
    roomy = PolicyConfig(kv_tokens=4096, max_model_len=256)
    tight = replace(roomy, kv_tokens=288)
    expected, _ = answers(roomy, how)
    for policies in (
        tight,
        replace(tight, preemption="swap", host_kv_tokens=4096),
        replace(tight, prefix_cache=True, host_cache_tokens=1024, batching="chunked"),
    ):
        found, preempted = answers(policies, how)
        assert preempted
        assert found == expected
