"""The computed figures of attention and memory in the evidence are those of the code."""

import re
from dataclasses import replace

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.layers import Experts
from servetwin.sim.step_times.acceptance import Chain
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.attention import (
    CrossLayer,
    Dilated,
    GroupedQuery,
    KVBudget,
    LinearAttention,
    MultiHeadLatent,
    MultiQuery,
    SlidingWindow,
    StateSpace,
    Streaming,
)
from servetwin.sim.techniques.experts import MixtureOfExperts
from servetwin.sim.techniques.memory import (
    KVCache,
    KVOffload,
    LowRankKV,
    TurnCompression,
    WeightOffload,
)
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.sim.techniques.technique import Technique
from tests.support.acceptance import mean_tokens_per_pass
from tests.support.attention_techniques import LLAMA, ideal, step_s
from tests.support.evidence import number, rows
from tests.support.formulas.techniques import (
    break_even_bytes_per_s,
    low_rank_elements,
    token_passes,
)
from tests.support.offloading import opt_13b, phone

OF_FAMILY: dict[str, tuple[type[Technique], ...]] = {
    "attention": (
        GroupedQuery, MultiQuery, MultiHeadLatent, CrossLayer, SlidingWindow, Dilated, Streaming,
        KVBudget, MixtureOfExperts, StateSpace, LinearAttention,
    ),
    "memory": (KVCache, LowRankKV, TurnCompression, WeightOffload, KVOffload),
}  # fmt: skip
H200 = find_hardware("h200")
BY_NAME = {technique.name: technique for family in OF_FAMILY.values() for technique in family}


@pytest.mark.parametrize("family", OF_FAMILY)
def test_every_technique_is_of_its_family(family: str) -> None:
    members = {name for name, technique in TECHNIQUES.items() if technique.family == family}
    assert {technique.name for technique in OF_FAMILY[family]} == members


@pytest.mark.parametrize("row", rows("attention"), ids=lambda row: row[0])
def test_the_table_of_attention(row: list[str]) -> None:
    name, _, given = row[0].strip("`").partition(":")
    setup = ideal(LLAMA)
    if name != "none":
        parameters = dict(part.split("=") for part in given.split(",") if part)
        setup = BY_NAME[name].model_validate(parameters).apply(setup)
    model = setup.deployment.model
    kept_mib = model.resident_kv_elements(32_768) * 2 / 2**20
    figures = [f"{kept_mib:,.0f}", f"{model.params() / 1e9:.2f}"]
    assert row[1:] == [*figures, f"{step_s(setup, 1, 32_768) * 1e3:.2f}"]


def test_the_table_of_experts() -> None:
    ffn = Experts(experts=8, top_k=2, width=1)
    for tokens, read in rows("experts-touched"):
        assert read == f"{ffn.touched_experts(int(tokens)):.4f}"


def test_the_table_of_trained_mixtures() -> None:
    """A prompt of 1000 tokens, and a decode behind as many, alone and among 64."""
    for name, total, active, *times in rows("mixtures"):
        model = find_model(name.strip("`"))
        assert [total, active] == [
            f"{n / 1e9:,.1f}" for n in (model.params(), model.active_params())
        ]
        step_time = roofline_step_time(replace(ideal(model).deployment, hardware=H200))
        shapes = [BatchShape(0, 0, 0, ((0, 1000),))]
        shapes += [BatchShape(n, n * 1000, n) for n in (1, 64)]
        assert times == [f"{float(step_time.seconds(s)[0]) * 1e3:,.1f}" for s in shapes]


def test_the_table_of_low_ranks() -> None:
    for cells in rows("low-rank"):
        tokens, rank, ratio = map(number, cells)
        elements = low_rank_elements(int(tokens), 4096, int(rank))
        assert ratio == pytest.approx(tokens * 4096 / elements, abs=5e-3)


def test_the_table_of_turns() -> None:
    low, drop = (
        TurnCompression.model_validate({"method": method}).apply(ideal(LLAMA)).deployment.model
        for method in ("low-rank", "drop")
    )
    for turn, tokens, *kept in rows("turns"):
        context = 512 * int(turn)
        assert tokens == f"{context:,}"
        models = (LLAMA, low, drop)
        assert kept == [f"{m.resident_kv_elements(context) * 2 / 2**20:,.0f}" for m in models]


def test_the_table_of_streamed_weights() -> None:
    for resident, drafts, alpha, tokens_per_s in rows("streamed-weights"):
        kept = re.findall(r"[\d.]+", resident)
        passes_per_s = 1 / step_s(phone(float(kept[0])), 1, 100)
        per_pass = 1.0
        if drafts != "none":
            per_pass = mean_tokens_per_pass(Chain(float(alpha), int(drafts.split(",")[0])))
        assert tokens_per_s == f"{passes_per_s * per_pass:.4f}"


def test_passes_without_a_cache_and_the_break_even_of_fetching() -> None:
    assert token_passes(1000, 250, cached=True) == 1_249
    assert token_passes(1000, 250, cached=False) == 281_125
    assert f"{break_even_bytes_per_s(opt_13b()) / 1e9:.1f}" == "6.1"
