"""Tables of measured times: between the points, beyond them, and what is wrong with a file.

The tables are made here, in the public schemas, from a device that computes in tiles of 64 rows.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.batch import BatchShape
from policies.config import PolicyConfig
from policies.registry import build_scheduler
from sim.core.simulate import simulate
from sim.step_times.step_time import FloatArray
from sim.step_times.tables import (
    Curve,
    OperatorTable,
    OperatorTimes,
    PhaseTable,
    Surface,
    Table,
    TableProfile,
    fit_efficiency,
    held_out_error,
)
from sim.step_times.tables.interpolate import LEVELS
from workloads.errors import ProfileError
from workloads.request import Request

LAYERS, OVERHEAD_S = 4, 1e-3
ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
BATCHES, CONTEXTS = [1, 2, 4, 8, 16, 32], [0, 128, 256, 512, 1024, 2048]
OPERATORS = {
    "attn_pre_proj": 3.0, "attn_post_proj": 1.0, "mlp_up_proj": 8.0, "mlp_act": 0.1,
    "mlp_down_proj": 4.0, "input_layernorm": 0.1, "add": 0.1,
}  # fmt: skip
"""Relative work of the operators of a layer."""


def tiles(rows: int) -> int:
    return -(-rows // 64)


def linear_ms(rows: int, work: float) -> float:
    """A launch, and the longer of reading the weights and computing whole tiles."""
    return 0.004 + work * max(0.01, 0.006 * tiles(rows))


def prefill_ms(rows: int, start: int) -> float:
    return 0.01 + 2e-7 * (rows * start + rows * (rows + 1) / 2)


def decode_ms(decodes: int, context: int) -> float:
    return 0.008 + 3e-6 * decodes * context


Noise = Callable[[], float]


def quiet() -> float:
    return 1.0


def noisy(sigma: float, seed: int = 1) -> Noise:
    rng = np.random.default_rng(seed)
    return lambda: float(np.exp(sigma * rng.standard_normal()))


def mlp_frame(noise: Noise = quiet, rows: list[int] = ROWS) -> pd.DataFrame:
    shared = {"n_head": 32, "n_embd": 4096, "num_tensor_parallel_workers": 1}
    return pd.DataFrame(
        [
            {"time_stats.emb.median": 0.002 + 1e-5 * n}
            | {f"time_stats.{k}.median": noise() * linear_ms(n, w) for k, w in OPERATORS.items()}
            | shared
            | {"num_tokens": n}
            for n in rows
        ]
    )


def attention_frame(noise: Noise = quiet, longest: int = 4096) -> pd.DataFrame:
    """Chunks at the multiples of their size, as Vidur's profiler lays them out, and decodes."""
    chunks = [(n, s) for n in (32, 64, 128, 256, 512, 1024, 2048) for s in range(0, longest - n, n)]
    prefill = [
        {
            "batch_size": 1,
            "prefill_chunk_size": n,
            "kv_cache_size": s,
            "time_stats.attn_prefill.median": noise() * prefill_ms(n, s),
        }
        for n, s in chunks
    ]
    decode = [{"batch_size": b, "prefill_chunk_size": 0, "kv_cache_size": c,
               "time_stats.attn_decode.median": noise() * decode_ms(b, c)}
              for b in BATCHES for c in CONTEXTS]  # fmt: skip
    frame = pd.DataFrame([*prefill, *decode])
    frame["is_prefill"] = frame["prefill_chunk_size"] > 0
    frame["time_stats.attn_kv_cache_save.median"] = 0.003
    return frame.assign(n_embd=4096, n_q_head=32, num_tensor_parallel_workers=1)


def operators(folder: Path, noise: Noise = quiet, **settings: Any) -> OperatorTable:
    mlp, attention = folder / "mlp.csv", folder / "attention.csv"
    mlp_frame(noise).to_csv(mlp, index=False)
    attention_frame(noise).to_csv(attention, index=False)
    given = {"layers": LAYERS, "overhead_s": OVERHEAD_S, **settings}
    return OperatorTable.read(mlp, attention, **given)


def ttft_ms(prompt: int, batch: int) -> float:
    return 20 + 0.15 * prompt * batch + 1e-6 * prompt**2 * batch


def tbt_ms(context: float, batch: int) -> float:
    return 22 + 0.3 * batch + 2e-4 * batch * context


def phase_frame(noise: Noise = quiet) -> pd.DataFrame:
    points = [(p, b, o) for p in (128, 256, 512, 1024, 2048) for b in (1, 2, 4, 8, 16)
              for o in (128, 256)]  # fmt: skip
    return pd.DataFrame(
        [
            {
                "model": "m-7b", "hardware": "device", "prompt_size": p, "batch_size": b,
                "token_size": o, "prompt_time": noise() * ttft_ms(p, b),
                "token_time": noise() * tbt_ms(p + o / 2, b), "tensor_parallel": 2,
            }
            for p, b, o in points
        ]
    )  # fmt: skip


def phases(folder: Path, noise: Noise = quiet, **settings: Any) -> PhaseTable:
    path = folder / "perf_model.csv"
    phase_frame(noise).to_csv(path, index=False)
    return PhaseTable.read(path, **settings)


def decode_shape(decodes: int, each: int) -> BatchShape:
    return BatchShape(decodes, decodes * each, decodes)


def prefill_shape(*chunks: tuple[int, int]) -> BatchShape:
    return BatchShape(0, 0, 0, chunks)


def of_rows_s(rows: int) -> float:
    """A layer's work by rows, from the formulas that made the table."""
    return 1e-3 * (sum(linear_ms(rows, work) for work in OPERATORS.values()) + 0.003)


def step_s(rows: int, attention_ms: float) -> float:
    embedding_s = 1e-3 * (0.002 + 1e-5 * rows)
    return OVERHEAD_S + embedding_s + LAYERS * (of_rows_s(rows) + 1e-3 * attention_ms)


@pytest.mark.parametrize(
    ("shape", "rows", "attention_ms"),
    [
        (decode_shape(8, 513), 8, decode_ms(8, 512)),  # a point of the table
        (decode_shape(8, 701), 8, decode_ms(8, 700)),  # linear in the context
        (decode_shape(8, 9001), 8, decode_ms(8, 9000)),  # and beyond the longest
        (prefill_shape((512, 256)), 256, prefill_ms(256, 512)),
        (prefill_shape((600, 256)), 256, prefill_ms(256, 600)),  # between starts: linear
        (prefill_shape((0, 32), (1000, 32)), 64, prefill_ms(32, 0) + prefill_ms(32, 1000)),
    ],
)
def test_a_step_is_overhead_and_layers_of_operators(
    tmp_path: Path, shape: BatchShape, rows: int, attention_ms: float
) -> None:
    assert operators(tmp_path).seconds(shape) == pytest.approx([step_s(rows, attention_ms)])


def test_between_batch_sizes_and_chunk_sizes_the_error_is_small(tmp_path: Path) -> None:
    """The truth is affine or quadratic; doublings are far apart."""
    table = operators(tmp_path).times
    between = table.decode_attention.section(11)(np.array([900.0]))
    assert between == pytest.approx([1e-3 * decode_ms(11, 900)], rel=0.03)
    between = table.prefill_attention.section(1400)(np.array([0.0]))
    assert between == pytest.approx([1e-3 * prefill_ms(1400, 0)], rel=0.03)


def test_where_one_start_was_measured_the_nearest_size_says_how_times_grow() -> None:
    surface = Surface(
        np.array([64.0, 64.0, 128.0]), np.array([0.0, 100.0, 0.0]), np.array([1.0, 3.0, 5.0])
    )
    assert surface.section(128.0)(np.array([0.0, 50.0, 100.0])) == pytest.approx([5, 6, 7])


def test_repeated_rows_count_as_their_median(tmp_path: Path) -> None:
    operators(tmp_path)
    disturbed = mlp_frame(lambda: 9.0)
    pd.concat([mlp_frame(), disturbed, mlp_frame()]).to_csv(tmp_path / "mlp.csv", index=False)
    files = tmp_path / "mlp.csv", tmp_path / "attention.csv"
    table = OperatorTable.read(*files, layers=LAYERS, overhead_s=OVERHEAD_S)
    expected = step_s(8, decode_ms(8, 512))
    assert table.seconds(decode_shape(8, 513)) == pytest.approx([expected])


@pytest.mark.parametrize(
    ("shape", "expected_ms"),
    [
        (prefill_shape((0, 512)), ttft_ms(512, 1)),
        (prefill_shape((0, 512), (0, 512)), ttft_ms(512, 2)),
        (prefill_shape((0, 256), (0, 768)), ttft_ms(512, 2)),  # their mean length
        (prefill_shape((1024, 1024)), ttft_ms(1024, 1)),  # the weights are read again
        (decode_shape(4, 576), tbt_ms(576, 4)),
        (decode_shape(4, 800), tbt_ms(800, 4)),
        (BatchShape(4, 4 * 576, 4, ((0, 512),)),
         tbt_ms(576, 4) + ttft_ms(512, 1) - tbt_ms(128 + 64, 1)),
    ],
)  # fmt: skip
def test_phases_are_looked_up_and_combined(
    tmp_path: Path, shape: BatchShape, expected_ms: float
) -> None:
    assert phases(tmp_path).seconds(shape) == pytest.approx([1e-3 * expected_ms])


def test_a_late_chunk_costs_what_longer_prompts_take_beyond_shorter_ones() -> None:
    """Where attention dominates: T(n) = n^2, so rows 200 to 300 of a prompt take 3^2 - 2^2."""
    u, v = np.ones(3), np.array([100.0, 200.0, 300.0])
    table = PhaseTable(Surface(u, v, (v / 100) ** 2), Surface(u, v, u))
    assert table.seconds(prefill_shape((200, 100))) == pytest.approx([5.0])


def test_a_mixed_step_is_between_the_longer_part_and_both(tmp_path: Path) -> None:
    table = phases(tmp_path, noisy(0.05))
    rng = np.random.default_rng(3)
    for decodes, context, rows in rng.integers((1, 10, 2), (40, 3000, 3000), (200, 3)).tolist():
        chunks = ((0, rows),)
        alone = decode_shape(decodes, context)
        decode_s, prefill_s = table.seconds(alone)[0], table.seconds(prefill_shape(*chunks))[0]
        (mixed_s,) = table.seconds(alone._replace(prefill_chunks=chunks))
        assert max(decode_s, prefill_s) <= mixed_s <= decode_s + prefill_s


grids = st.lists(
    st.tuples(st.integers(0, 5000), st.floats(1e-6, 10)), min_size=2, unique_by=lambda p: p[0]
).map(lambda points: Curve(*np.array(sorted(points), float).T))


@given(grids, st.floats(0, 10_000))
def test_a_time_stays_between_its_neighbours_and_never_falls_beyond_the_last(
    curve: Curve, x: float
) -> None:
    (time_s,) = curve(np.array([x]))
    rounding = 1e-12 * curve.times_s.max()
    place = int(np.searchsorted(curve.x, x))
    around = curve.times_s[max(place - 1, 0) : place + 1]
    assert time_s >= max(around.min() - rounding, 0.0)
    assert time_s <= around.max() + rounding or place == len(curve.x)


@given(grids, st.floats(0, 10_000), st.floats(0, 10_000))
def test_where_the_table_rises_so_do_the_times(curve: Curve, x: float, y: float) -> None:
    rising = Curve(curve.x, np.sort(curve.times_s))
    low, high = rising(np.sort([x, y]))
    assert low <= high + 1e-12 * rising.times_s.max()


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.integers(0, 999), st.floats(1e-6, 1)),
        min_size=1,
        unique_by=lambda p: p[:2],
    ),
    st.integers(1, 200),
    st.floats(0, 3000),
)
def test_a_surface_of_any_points_has_positive_times_everywhere(
    points: list[tuple[int, int, float]], u: int, v: float
) -> None:
    surface = Surface(*np.array(points, float).T)
    assert 0 < surface.section(u)(np.array([v]))[0] < np.inf


def test_extrapolation_follows_the_last_octave_and_not_the_last_two_points() -> None:
    x = np.arange(1.0, 1025.0)
    times_s = 1 + x
    times_s[-2] += 20  # a disturbed point: the last segment falls
    assert Curve(x, times_s)(np.array([2048.0])) == pytest.approx([2049.0])
    surface = Surface(x, np.zeros(1024), times_s)
    assert surface.section(2048.0)(np.zeros(1)) == pytest.approx([2049.0])


def test_beyond_the_last_size_times_do_not_fall_although_they_fell_before() -> None:
    falling = Surface(np.array([1.0, 2.0, 4.0]), np.zeros(3), np.array([3.0, 2.0, 1.0]))
    assert falling.section(100.0)(np.zeros(1)) == pytest.approx([1.0])


def test_below_the_first_point_times_are_those_of_the_first() -> None:
    curve = Curve(np.array([10.0, 20.0]), np.array([1.0, 2.0]))
    assert curve(np.array([0.0, 9.0, 10.0])) == pytest.approx([1, 1, 1])
    surface = Surface(np.array([4.0, 8.0]), np.zeros(2), np.array([1.0, 2.0]))
    assert surface.section(1.0)(np.zeros(1)) == pytest.approx([1.0])


@given(
    decodes=st.integers(0, 50),
    each=st.integers(1, 5000),
    chunks=st.lists(st.tuples(st.integers(0, 3000), st.integers(2, 3000)), max_size=2),
    steps=st.integers(1, 30),
)
@pytest.mark.parametrize("kind", ["operators", "phases"])
def test_a_run_of_steps_is_its_single_steps_to_the_bit(
    tables: dict[str, Table],
    kind: str,
    decodes: int,
    each: int,
    chunks: list[tuple[int, int]],
    steps: int,
) -> None:
    first = BatchShape(decodes, decodes * each, decodes, tuple(chunks))
    run = tables[kind].seconds(first, steps)
    single = [
        tables[kind].seconds(first._replace(decode_context_tokens=decodes * (each + step)))[0]
        for step in range(steps)
    ]
    assert run.tolist() == single


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    folder = tmp_path_factory.mktemp("tables")
    return {"operators": operators(folder, noisy(0.03)), "phases": phases(folder, noisy(0.03))}


@pytest.mark.parametrize(
    ("kind", "decodes", "each", "chunks", "chunk_rows", "chunk_start", "expected"),
    [
        ("operators", 8, 513, 0, 0, 0, "measured"),
        ("operators", 8, 514, 0, 0, 0, "interpolated"),
        ("operators", 9, 513, 0, 0, 0, "interpolated"),
        ("operators", 8, 2050, 0, 0, 0, "extrapolated"),
        ("operators", 33, 513, 0, 0, 0, "extrapolated"),
        ("operators", 0, 0, 1, 512, 1024, "measured"),
        ("operators", 0, 0, 1, 500, 1024, "interpolated"),
        ("operators", 0, 0, 1, 512, 4000, "extrapolated"),
        ("operators", 0, 0, 2, 2048, 0, "extrapolated"),  # 4096 rows
        ("operators", 8, 513, 1, 512, 1024, "interpolated"),  # 520 rows
        ("phases", 4, 576, 0, 0, 0, "measured"),
        ("phases", 5, 576, 0, 0, 0, "interpolated"),
        ("phases", 17, 576, 0, 0, 0, "extrapolated"),
        ("phases", 0, 0, 4, 512, 0, "measured"),
        ("phases", 0, 0, 4, 100, 0, "extrapolated"),  # below the shortest prompt
        ("phases", 0, 0, 1, 512, 512, "interpolated"),
        ("phases", 4, 576, 1, 512, 0, "interpolated"),
        ("phases", 4, 576, 1, 4096, 0, "extrapolated"),
    ],
)
def test_every_time_says_where_it_comes_from(
    tables: dict[str, Table],
    kind: str,
    decodes: int,
    each: int,
    chunks: int,
    chunk_rows: int,
    chunk_start: int,
    expected: str,
) -> None:
    query = (decodes, decodes * each, chunks, chunk_rows, chunk_start)
    assert tables[kind].provenance(*query).tolist() == [expected]
    columns = [[value, value] for value in query]
    assert tables[kind].provenance(*columns).tolist() == 2 * [expected]


def test_between_two_sizes_a_time_is_interpolated_where_both_were_measured_around_it() -> None:
    """Contexts 10 to 100 at batch 1, and 0 to 50 at batch 3."""
    surface = Surface(np.array([1.0, 1, 3, 3]), np.array([10.0, 100, 0, 50]), np.ones(4))
    contexts = np.array([5.0, 10, 50, 60])
    levels = [LEVELS[level] for level in surface.levels(np.full(4, 2.0), contexts)]
    assert levels == ["extrapolated", "interpolated", "interpolated", "extrapolated"]
    swapped = Surface(np.array([1.0, 1, 3, 3]), np.array([0.0, 50, 10, 100]), np.ones(4))
    assert swapped.levels(np.full(4, 2.0), contexts).tolist() == [2, 1, 1, 2]


def test_ranges_are_those_of_the_points(tables: dict[str, Table]) -> None:
    ranges = tables["operators"].ranges
    assert ranges["products and norms"] == {"rows": (1, 2048)}
    assert ranges["prefill attention"] == {"chunk rows": (32, 2048), "chunk start": (0, 4032)}
    assert ranges["decode attention"] == {"decodes": (1, 32), "context": (0, 2048)}
    assert tables["phases"].ranges["decode"]["context"] == (128 + 64, 2048 + 128)


def test_held_out_error_is_that_of_the_noise_where_the_truth_is_smooth() -> None:
    """Next to dense neighbours a prediction has at least the noise of one point, at most of two."""
    x = np.arange(1.0, 2001.0)
    noise = 0.05 * np.random.default_rng(5).standard_normal(2000)
    error = held_out_error(Curve(x, (1 + x) * np.exp(noise)))
    assert error is not None
    assert error.points == 1000
    assert 0.6745 * 0.05 < error.median < 0.6745 * 0.05 * np.sqrt(2)
    assert 1.645 * 0.05 < error.p90 < 1.645 * 0.05 * np.sqrt(2)
    exact = held_out_error(Curve(x, 1 + x))
    assert exact is not None
    assert exact.p90 < 1e-9
    assert held_out_error(Curve(x[:3], x[:3])) is None


def test_the_summary_has_a_line_per_part_with_its_error(tables: dict[str, Table]) -> None:
    lines = tables["operators"].summary()
    assert len(lines) == 5
    errors = tables["operators"].held_out_errors()
    for line, (part, error) in zip(lines, errors.items(), strict=True):
        assert line.startswith(f"{part}: ")
        assert error is not None
        assert str(error) in line
        assert f"{error.median:.1%} (median), {error.p90:.1%} (p90)" in line
    assert "rows 1 to 2,048" in lines[0]


PEAK_FLOPS_PER_S, BYTES_PER_S = 300e12, 1.5e12
HIDDEN, OUT = 4096, 28_672


def matrix_work(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """FLOPs and bytes of (rows x 4096) times (4096 x 28672) in two bytes per element."""
    return 2 * rows * HIDDEN * OUT, 2 * (HIDDEN * OUT + rows * (HIDDEN + OUT))


def roofline_s(flops: FloatArray, moved_bytes: FloatArray) -> FloatArray:
    """Half of the peak, 80 % of the bandwidth, 20 us, knee 3: written apart from the fit."""
    compute_s, memory_s = flops / (0.5 * PEAK_FLOPS_PER_S), moved_bytes / (0.8 * BYTES_PER_S)
    return 20e-6 + np.cbrt(compute_s**3 + memory_s**3)


def test_efficiencies_that_made_the_times_are_found() -> None:
    rows = np.array([2.0**k for k in range(14)])
    small_rows = np.array([1e-4, 1e-2, 1.0, 100.0])  # little work shows the overhead
    flops, moved = matrix_work(rows)
    flops, moved = np.append(flops, 1e6 * small_rows), np.append(moved, 1e5 * small_rows)
    fit = fit_efficiency(roofline_s(flops, moved), flops, moved, PEAK_FLOPS_PER_S, BYTES_PER_S)
    found = [fit.compute, fit.memory, fit.overhead_s, fit.knee]
    assert found == pytest.approx([0.5, 0.8, 20e-6, 3.0], rel=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_efficiencies_of_one_half_of_a_table_predict_the_other(tmp_path: Path, seed: int) -> None:
    """mlp.csv in the public schema: one product in tiles of 64 rows, with 5 % of noise."""
    rng = np.random.default_rng(seed)
    rows = np.unique(np.geomspace(1, 8192, 120).round())
    frame = mlp_frame(rows=rows.astype(int).tolist())
    for name in OPERATORS:
        frame[f"time_stats.{name}.median"] = 1e-4
    times_s = roofline_s(matrix_work(64 * np.ceil(rows / 64))[0], matrix_work(rows)[1])
    frame["time_stats.mlp_up_proj.median"] = (
        1e3 * times_s * np.exp(0.05 * rng.normal(size=len(rows)))
    )
    operators(tmp_path)
    frame.to_csv(tmp_path / "mlp.csv", index=False)
    linear = OperatorTable.read(
        tmp_path / "mlp.csv", tmp_path / "attention.csv", layers=LAYERS
    ).times.linear
    work = matrix_work(linear.x)
    fit = fit_efficiency(linear.times_s, *work, PEAK_FLOPS_PER_S, BYTES_PER_S, seed)
    assert fit.held_out_error.points == len(rows) // 2
    assert fit.held_out_error.p90 < 0.15
    at_peak_s = np.maximum(work[0] / PEAK_FLOPS_PER_S, work[1] / BYTES_PER_S)
    assert (fit.seconds(*work, PEAK_FLOPS_PER_S, BYTES_PER_S) >= at_peak_s).all()


def test_no_efficiency_is_above_one_even_where_the_times_are_too_short() -> None:
    work = matrix_work(np.array([2.0**k for k in range(14)]))
    fit = fit_efficiency(0.3 * roofline_s(*work), *work, PEAK_FLOPS_PER_S, BYTES_PER_S)
    assert fit.compute <= 1
    assert fit.memory <= 1


@pytest.mark.parametrize(
    ("times_s", "flops", "peak", "message"),
    [
        (np.ones(9), np.ones(9), 1e12, "at least 10"),
        (np.ones(12), np.ones(11), 1e12, "as many of each"),
        (np.zeros(12), np.ones(12), 1e12, "point 0; all must be finite and above 0"),
        (np.ones(12), np.full(12, np.nan), 1e12, "FLOPs: point 0"),
        (np.ones(12), np.ones(12), 0.0, "both must be above 0"),
    ],
)
def test_impossible_work_is_refused(
    times_s: FloatArray, flops: FloatArray, peak: float, message: str
) -> None:
    with pytest.raises(ProfileError, match=message):
        fit_efficiency(times_s, flops, np.ones(len(flops)), peak, 1e12)


def test_a_table_serves_requests_and_macro_steps_change_nothing(tables: dict[str, Table]) -> None:
    policies = PolicyConfig(max_seqs=8, kv_tokens=4096)
    requests = [Request(f"r{i}", 0.05 * i, 100 + 7 * i, 20 + i) for i in range(12)]
    for table in tables.values():
        profile = TableProfile("table", table, policies)
        model = profile.step_time("paged").model()
        runs = [
            simulate(requests, build_scheduler(policies), model, macro=macro)
            for macro in (True, False)
        ]
        assert runs[0].requests.equals(runs[1].requests)
        assert len(runs[0].steps) < len(runs[1].steps)


def test_draws_scatter_as_the_worst_part_predicts_its_unseen_points(
    tables: dict[str, Table],
) -> None:
    fit = TableProfile("table", tables["phases"], PolicyConfig()).step_time("paged")
    errors = [error.median for error in tables["phases"].held_out_errors().values() if error]
    assert len(errors) == 2
    assert fit.log_deviation == pytest.approx(max(errors) / 0.6745)
    shape = decode_shape(4, 600)
    rng = np.random.default_rng(7)
    drawn = np.array([fit.drawn(rng).seconds(shape)[0] for _ in range(400)])
    logs = np.log(drawn / fit.model().seconds(shape)[0])
    assert abs(logs.mean()) < 4 * fit.log_deviation / 20
    assert logs.std() == pytest.approx(fit.log_deviation, rel=0.15)
    assert not fit.is_certain()
    assert fit.noise_factors().tolist() == [1.0]


def test_parts_that_last_a_few_ticks_do_not_make_a_table_uncertain() -> None:
    x = np.arange(1.0, 41.0)
    smooth = Surface(x, np.zeros(40), x)
    ticks = Curve(x, 1e-6 * (1 + x % 3))
    table = OperatorTable(OperatorTimes(Curve(x, x), smooth, smooth, ticks), layers=1)
    error = table.held_out_errors()["cache writes"]
    assert error is not None
    assert error.median > 0.1
    assert table.log_deviation() < 0.01


def test_a_table_too_small_to_know_its_error_is_certain() -> None:
    point = Surface(np.ones(1), np.ones(1), np.ones(1))
    curve = Curve(np.ones(1), np.ones(1))
    table = OperatorTable(OperatorTimes(curve, point, point), layers=1)
    profile = TableProfile("tiny", table, PolicyConfig(kv_tokens=99_999))
    assert profile.step_time("contiguous").is_certain()
    assert profile.policy_config().kv_tokens == 99_999
    assert "too few points" in table.summary()[0]
    with pytest.raises(ProfileError, match="tiny: kv_bytes"):
        profile.kv_bytes_per_token()


Change = Callable[[pd.DataFrame], pd.DataFrame]


def put(column: str, line: int, value: Any) -> Change:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        texts = frame.astype(object)
        texts.loc[line - 2, column] = value
        return texts

    return change


def in_seconds(frame: pd.DataFrame) -> pd.DataFrame:
    times = [column for column in frame if str(column).endswith(".median")]
    return frame.assign(**{str(column): 1e-3 * frame[column] for column in times})


UP = "time_stats.mlp_up_proj.median"
TP = "num_tensor_parallel_workers"


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("mlp", lambda f: f.drop(columns=UP), rf"mlp.csv: no column '{UP}'; did you mean"),
        ("mlp", lambda f: f.drop(columns="num_tokens"), "no column 'num_tokens'"),
        ("mlp", put(UP, 5, -1.0), rf"mlp.csv:5: column '{UP}': '-1.0' .* at least 0"),
        ("mlp", put(UP, 6, "fast"), rf"mlp.csv:6: column '{UP}': 'fast' is not possible"),
        ("mlp", put(UP, 6, ""), rf"mlp.csv:6: column '{UP}': '' is not possible"),
        ("mlp", put(UP, 6, "inf"), rf"mlp.csv:6: column '{UP}': 'inf'"),
        ("mlp", put("num_tokens", 3, 1.5), r"mlp.csv:3: column 'num_tokens': '1.5' .* at least 1"),
        ("mlp", put("num_tokens", 3, 0), r"mlp.csv:3: .* at least 1"),
        ("mlp", lambda f: f.assign(**{TP: 4}), f"column '{TP}': no row has 1, only 4"),
        ("mlp", put("n_embd", 4, 8192), "'n_embd': rows of several: 4096, 8192; name one"),
        ("mlp", in_seconds, "must be in ms, these look like seconds"),
        ("mlp", lambda f: f.assign(**{UP: 1e9}), "look like microseconds or nanoseconds"),
        ("mlp", lambda f: f.iloc[:0], "mlp.csv: no rows"),
        ("attention", lambda f: f[f["prefill_chunk_size"] > 0], "attention.csv: no decode rows"),
        ("attention", lambda f: f[f["prefill_chunk_size"] == 0], "attention.csv: no prefill rows"),
        ("attention", put("time_stats.attn_prefill.median", 4, None), "attention.csv:4: column"),
        ("attention", lambda f: f.assign(n_embd=5120), "attention.csv: .* no row has '4096', only"),
    ],
)  # fmt: skip
def test_a_bad_operator_table_is_refused_with_its_place(
    tmp_path: Path, file: str, change: Change, message: str
) -> None:
    operators(tmp_path)
    path = tmp_path / f"{file}.csv"
    frame = mlp_frame() if file == "mlp" else attention_frame()
    change(frame).to_csv(path, index=False)
    with pytest.raises(ProfileError, match=message):
        OperatorTable.read(tmp_path / "mlp.csv", tmp_path / "attention.csv", layers=LAYERS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers: 0"),
        ({"overhead_s": -1.0}, "overhead_s: -1.0"),
        ({"tensor_parallel": 3}, f"mlp.csv: column '{TP}': no row has 3, only 1"),
        ({"where": {"n_embed": 5120}}, "where: no column 'n_embed' in"),
        ({"where": {"n_embd": 5120}}, "'n_embd': no row has 5120, only 4096"),
    ],
)
def test_impossible_settings_of_an_operator_table_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProfileError, match=message):
        operators(tmp_path, **settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"perf_model.csv: the table cannot be read"),
        ("", "perf_model.csv: no rows"),
        ("model,hardware\nx,y,z\n", r"perf_model.csv:2: 3 fields; the header has 2"),
        ("model,model\nx,y\n", r"perf_model.csv:1: column 'model' is there twice"),
        ('model,hardware\n"x,y\n', "cannot be read"),
        ("model,hardware\nx,y\n", "no column 'tensor_parallel'"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "perf_model.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ProfileError, match=message):
        PhaseTable.read(path)


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (put("prompt_time", 7, -3), {}, r"csv:7: column 'prompt_time': '-3'"),
        (put("hardware", 3, "other"), {}, "'hardware': rows of several: device, other; name one"),
        (lambda f: f, {"model": "m-8b"}, "'model': no row has 'm-8b', only m-7b"),
        (lambda f: f, {"tensor_parallel": 4}, "'tensor_parallel': no row has 4, only 2"),
        (lambda f: f, {"overhead_s": float("nan")}, "overhead_s: nan"),
        (lambda f: f.assign(token_time=5e6), {}, "look like microseconds or nanoseconds"),
        (lambda f: f.assign(token_time=5e-5), {}, "look like seconds"),
    ],
)
def test_a_bad_phase_table_is_refused_with_its_place(
    tmp_path: Path, change: Change, settings: dict[str, Any], message: str
) -> None:
    path = tmp_path / "perf_model.csv"
    change(phase_frame()).to_csv(path, index=False)
    with pytest.raises(ProfileError, match=message):
        PhaseTable.read(path, **settings)
