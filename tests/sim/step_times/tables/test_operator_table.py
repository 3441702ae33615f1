"""Operator tables: steps of operators, and files that are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.tables.interpolate import Surface
from servetwin.sim.step_times.tables.published_tables import OperatorTable, PhaseTable
from servetwin.workloads.errors import ProfileError
from tests.support.measured_tables import (
    LAYERS,
    OPERATORS,
    OVERHEAD_S,
    Change,
    attention_frame,
    decode_ms,
    decode_shape,
    linear_ms,
    mlp_frame,
    operators,
    prefill_ms,
    prefill_shape,
    put,
)


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
        ("mlp", lambda f: f.assign(num_tokens=f["num_tokens"].to_numpy()[::-1]),
         r"mlp.csv: column 'time_stats.\*.median': .* ms at num_tokens 1, but .*; a time may fall"),
        ("attention", put("time_stats.attn_prefill.median", 9, 0.001),
         r"attn_prefill.median': .* kv_cache_size .* \(prefill_chunk_size 32\); a time may fall"),
        ("attention", lambda f: f.assign(**{"time_stats.attn_decode.median": 1 / f["batch_size"]}),
         r"attn_decode.median': 1 ms at batch_size 1, but 0.5 ms at batch_size 2 \(kv_cache"),
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
