"""The figures of docs/techniques/{attention,memory}.md are those of the code."""

import re
from dataclasses import replace

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.feed_forward import Experts
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
from servetwin.sim.techniques.technique import Technique
from tests.support.attention_techniques import LLAMA, ideal, step_s
from tests.support.formulas.techniques import (
    break_even_bytes_per_s,
    low_rank_elements,
    token_passes,
)
from tests.support.offloading import opt_13b, phone
from tests.support.paths import DOCS

TECHNIQUES_PAGES = DOCS / "techniques"
PAGES = {name: (TECHNIQUES_PAGES / f"{name}.md").read_text() for name in ("attention", "memory")}
OF_PAGE: dict[str, tuple[type[Technique], ...]] = {
    "attention": (
        GroupedQuery, MultiQuery, MultiHeadLatent, CrossLayer, SlidingWindow, Dilated, Streaming,
        KVBudget, MixtureOfExperts, StateSpace, LinearAttention,
    ),
    "memory": (KVCache, LowRankKV, TurnCompression, WeightOffload, KVOffload),
}  # fmt: skip
H200 = find_hardware("h200")
BY_NAME = {technique.name: technique for page in OF_PAGE.values() for technique in page}


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading."""
    table = re.search(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGES[page], re.MULTILINE)
    assert table
    lines = table.group(1).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


@pytest.mark.parametrize("page", OF_PAGE)
def test_every_technique_has_a_section_and_is_of_its_family(page: str) -> None:
    headings = re.findall(r"^## (.*)$", PAGES[page], re.MULTILINE)
    assert headings == [technique.name for technique in OF_PAGE[page]]
    assert {technique.family for technique in OF_PAGE[page]} == {page}


@pytest.mark.parametrize("row", rows("attention", "technique"), ids=lambda row: row[0])
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
    for tokens, read in rows("attention", "tokens"):
        assert read == f"{ffn.touched_experts(int(tokens)):.4f}"


def test_the_table_of_trained_mixtures() -> None:
    """A prompt of 1000 tokens, and a decode behind as many, alone and among 64."""
    for name, total, active, *times in rows("attention", "model"):
        model = find_model(name.strip("`"))
        assert [total, active] == [
            f"{n / 1e9:,.1f}" for n in (model.params(), model.active_params())
        ]
        step_time = roofline_step_time(replace(ideal(model).deployment, hardware=H200))
        shapes = [BatchShape(0, 0, 0, ((0, 1000),))]
        shapes += [BatchShape(n, n * 1000, n) for n in (1, 64)]
        assert times == [f"{float(step_time.seconds(s)[0]) * 1e3:,.1f}" for s in shapes]


def test_the_table_of_low_ranks() -> None:
    for cells in rows("memory", "tokens"):
        tokens, rank, ratio = map(number, cells)
        elements = low_rank_elements(int(tokens), 4096, int(rank))
        assert ratio == pytest.approx(tokens * 4096 / elements, abs=5e-3)


def test_the_table_of_turns() -> None:
    low, drop = (
        TurnCompression.model_validate({"method": method}).apply(ideal(LLAMA)).deployment.model
        for method in ("low-rank", "drop")
    )
    for turn, tokens, *kept in rows("memory", "turn"):
        context = 512 * int(turn)
        assert tokens == f"{context:,}"
        models = (LLAMA, low, drop)
        assert kept == [f"{m.resident_kv_elements(context) * 2 / 2**20:,.0f}" for m in models]


def test_the_table_of_streamed_weights() -> None:
    for resident, drafts, alpha, tokens_per_s in rows("memory", "resident, GB"):
        kept = re.findall(r"[\d.]+", resident)
        passes_per_s = 1 / step_s(phone(float(kept[0])), 1, 100)
        per_pass = 1.0
        if drafts != "none":
            per_pass = Chain(float(alpha), int(drafts.split(",")[0])).mean_tokens_per_pass()
        assert tokens_per_s == f"{passes_per_s * per_pass:.4f}"


def test_figures_within_the_text() -> None:
    assert f"{token_passes(1000, 250, cached=True):,}" in PAGES["memory"]
    assert f"{token_passes(1000, 250, cached=False):,}" in PAGES["memory"]
    assert f"{break_even_bytes_per_s(opt_13b()) / 1e9:.1f} GB/s" in PAGES["memory"]
