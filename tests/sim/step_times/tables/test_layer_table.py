"""Step times from layer times: exact steps, runs of steps, several chunks, ranks, skew."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.step_times.tables import LayerTable
from servetwin.sim.step_times.tables.layer_bundle import LayerTimes, read_layer_bundle
from servetwin.sim.step_times.tables.layer_table import as_one_chunk
from servetwin.workloads.errors import ProfileError
from tests.support.layer_bundles import attention_us, head_us, layer_us, once_us, write_bundle
from tests.support.macro_steps import assert_macro_steps_change_nothing

MODEL = find_model("llama-3.1-8b")
LAYERS = 32
MOE = find_model("qwen3-30b-a3b")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> LayerTimes:
    return read_layer_bundle(write_bundle(tmp_path_factory.mktemp("plain") / "layers"))


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> LayerTimes:
    folder = tmp_path_factory.mktemp("skewed") / "layers"
    return read_layer_bundle(write_bundle(folder, decodes=0.2, mixed=0.5))


def step_us(rows: float, sequences: float, attention: float) -> float:
    return LAYERS * (layer_us(rows) + attention) + once_us(rows) + head_us(sequences)


@pytest.mark.parametrize(
    ("shape", "expected_us"),
    [
        (BatchShape(8, 8 * 301, 8), step_us(8, 8, attention_us(0, 0, 8, 300))),
        (BatchShape(0, 0, 0, ((256, 700),)), step_us(700, 1, attention_us(700, 256, 0, 0))),
        (
            BatchShape(64, 64 * 1001, 64, ((0, 448),)),
            step_us(512, 65, attention_us(448, 0, 64, 1000)),
        ),
    ],
)
def test_a_step_is_the_sum_of_its_parts(
    bundle: LayerTimes, shape: BatchShape, expected_us: float
) -> None:
    table = LayerTable(bundle, MODEL)
    assert 1e6 * table.seconds(shape)[0] == pytest.approx(expected_us, rel=1e-9)
    assert table.scaled(1.5).seconds(shape)[0] == pytest.approx(1.5 * table.seconds(shape)[0])


def test_several_chunks_are_one_with_as_many_pairs() -> None:
    assert as_one_chunk([(300, 64)]) == (64, 300)
    rows, start = as_one_chunk([(1000, 100), (2000, 300)])
    assert rows == 400
    assert rows * (start + rows / 2) == pytest.approx(100 * 1050 + 300 * 2150)
    rows, start = as_one_chunk([(0, 500), (0, 500)])
    assert start == 0
    assert rows * rows / 2 == pytest.approx(2 * 500 * 250)


def test_ranks_reduce_twice_a_layer_and_once_a_step(bundle: LayerTimes) -> None:
    link, shape = Link(5e-6, 50e9), BatchShape(16, 16 * 200, 16)
    alone = LayerTable(replace(bundle, ranks=2), MODEL)
    joined = LayerTable(replace(bundle, ranks=2), MODEL, link)
    size_bytes = 16 * 4096 * 2
    message_s = 2 * 5e-6 + size_bytes / 50e9
    assert joined.seconds(shape)[0] - alone.seconds(shape)[0] == pytest.approx(65 * message_s)


def test_unequal_contexts_wait_for_the_longest(skewed: LayerTimes) -> None:
    table = LayerTable(skewed, MODEL)
    contexts = (101, 1001)
    shape = BatchShape(2, sum(contexts), 2, longest_context=max(contexts))
    equal = LayerTable(replace(skewed, decode_skew=None, mixed_skew=None), MODEL)
    gap_us = LAYERS * 0.2 * 0.001 * 2 * (1000 - 550)
    found = 1e6 * (table.seconds(shape)[0] - equal.seconds(shape)[0])
    assert found == pytest.approx(gap_us, rel=1e-6)
    mixed = shape._replace(prefill_chunks=((0, 64),))
    found = 1e6 * (table.seconds(mixed)[0] - equal.seconds(mixed)[0])
    assert found == pytest.approx(LAYERS * 0.5 * 0.001 * 2 * (1000 - 550), rel=1e-6)


def test_a_model_with_experts_needs_their_times(bundle: LayerTimes, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no moe\.csv, but qwen3-30b-a3b has experts"):
        LayerTable(bundle, find_model("qwen3-30b-a3b"))


def test_experts_are_timed_by_how_many_a_step_reaches(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "layers")
    rows = "\n".join(f"{n},{e},{2 * e}" for n in (1, 64, 2048) for e in (1, 8, 64, 128))
    (folder / "tp1" / "moe.csv").write_text(f"tokens,activated_experts,time_us\n{rows}\n")
    model = find_model("qwen3-30b-a3b")
    times = read_layer_bundle(folder)
    table = LayerTable(times, model)
    many = table.seconds(BatchShape(0, 0, 0, ((0, 2048),)))[0]
    dense_us = 48 * (layer_us(2048) + attention_us(2048, 0, 0, 0)) + once_us(2048) + head_us(1)
    assert 1e6 * many - dense_us == pytest.approx(48 * 2 * 128, rel=1e-3)


EXPERT_US = {1: 0.1, 2: 0.06}
"""Of a row, by the degree of expert parallelism."""


def write_experts(folder: Path, ranks: int = 1) -> None:
    """Experts take a time by the row, and 1 us for each that is reached."""
    rows = [
        f"{ep},{n},{e},{EXPERT_US[ep] * n + e}"
        for ep in EXPERT_US
        for n in (1, 8, 630, 1000, 1260, 4096)  # interpolation is not linear in between
        for e in (1, 128 // ep)
    ]
    text = "\n".join(["ep,tokens,activated_experts,time_us", *rows])
    (folder / f"tp{ranks}" / "moe.csv").write_text(text)


def moe_table(folder: Path, layout: Layout, imbalance: float = 1.0) -> LayerTable:
    times = read_layer_bundle(folder, layout)
    return LayerTable(times, MOE, Link(5e-6, 50e9), layout=layout, imbalance=imbalance)


DECODES = BatchShape(8, 8 * 301, 8)
CHUNK = BatchShape(0, 0, 0, ((0, 1000),))
NOTHING = BatchShape(0, 0, 0)


@pytest.mark.parametrize("known_ep", [True, False])
def test_ranks_wait_for_each_other_and_share_experts(tmp_path: Path, known_ep: bool) -> None:
    folder = write_bundle(tmp_path / "layers")
    write_experts(folder)
    layout, imbalance = Layout(dp=2, ep=2), 1.25
    if not known_ep:  # a device of two gets half of the pairs of one device
        path = folder / "tp1" / "moe.csv"
        lines = path.read_text().splitlines()
        path.write_text("\n".join(line for line in lines if not line.startswith("2,")))
    table = moe_table(folder, layout, imbalance)
    reached = 128 * (1 - (1 - 8 / 128) ** 1008) / 2
    per_row_us = EXPERT_US[2] if known_ep else EXPERT_US[1] / 2
    gathered_us = 1e6 * Link(5e-6, 50e9).all_reduce_s(1008 * MOE.width * 2, 2, "ring")
    layers_us = (
        layer_us(1000) + attention_us(1000, 0, 0, 0)
        + imbalance * per_row_us * 1008 + reached + gathered_us
    )  # fmt: skip
    expected_us = 48 * layers_us + once_us(1000) + head_us(1)
    found_us = 1e6 * table.group_seconds([DECODES, CHUNK])[0]
    assert found_us == pytest.approx(expected_us, rel=1e-4)


def test_a_rank_finds_the_others_without_work(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "layers")
    write_experts(folder)
    for layout in (Layout(), Layout(dp=2, ep=2)):
        table = moe_table(folder, layout)
        idle = [NOTHING] * (layout.dp - 1)
        for shape in (DECODES, CHUNK):
            together = table.group_seconds([shape, *idle], 3)
            np.testing.assert_allclose(together, table.seconds(shape, 3), rtol=1e-12)


def test_whole_experts_are_not_taken_for_shared_ones(tmp_path: Path) -> None:
    folder = write_bundle(write_bundle(tmp_path / "layers"), ranks=2)
    write_experts(folder)
    assert read_layer_bundle(folder, Layout(tp=2, ep=2)).expert_ranks == 2
    with pytest.raises(ProfileError, match=r"no moe\.csv .* of whole ones: --layout tp=2,ep=2"):
        read_layer_bundle(folder, Layout(tp=2))


@given(
    st.lists(st.integers(1, 6000), min_size=1, max_size=40), st.integers(0, 40), st.integers(1, 300)
)
def test_a_run_of_steps_is_its_single_steps(
    skewed: LayerTimes, contexts: list[int], dead: int, steps: int
) -> None:
    table = LayerTable(skewed, MODEL)
    growing = max(0, len(contexts) - dead)
    single = []
    for step in range(steps):
        now = [c + step * (place < growing) for place, c in enumerate(contexts)]
        longest = max(now[:growing], default=0)
        single.append(BatchShape(len(now), sum(now), growing, longest_context=longest))
    assert table.seconds(single[0], steps).tolist() == [table.seconds(s)[0] for s in single]


@pytest.mark.parametrize("kind", ["bundle", "skewed"])
def test_macro_steps_change_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    table = LayerTable(request.getfixturevalue(kind), MODEL)
    assert_macro_steps_change_nothing(table)


def test_its_uncertainty_is_that_of_all_unseen_points_together(bundle: LayerTimes) -> None:
    table = LayerTable(bundle, MODEL)
    errors = [error.of_sum for error in table.held_out_errors().values() if error]
    assert table.log_deviation() == pytest.approx(np.abs(errors).max())


def test_a_mixed_step_goes_on_beyond_the_longest_context_as_decodes_do(bundle: LayerTimes) -> None:
    shape = BatchShape(8, 8 * 9001, 8, ((0, 64),))
    expected_us = step_us(72, 9, attention_us(64, 0, 8, 9000))
    assert 1e6 * LayerTable(bundle, MODEL).seconds(shape)[0] == pytest.approx(expected_us)
