"""Phase tables: steps of TTFT and TBT, and files that are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.tables.interpolate import Surface
from servetwin.sim.step_times.tables.published_tables import PhaseTable
from servetwin.workloads.errors import ProfileError
from tests.support.measured_tables import (
    Change,
    decode_shape,
    noisy,
    phase_frame,
    phases,
    prefill_shape,
    put,
    tbt_ms,
    ttft_ms,
)


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


def quicker(column: str) -> Change:
    """The largest batch takes an eighth of its time, as where most of it never ran."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        factor = np.where(frame["batch_size"] == 16, 1 / 8, 1.0)
        return frame.assign(**{column: frame[column] * factor})

    return change


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (put("prompt_time", 7, -3), {}, r"csv:7: column 'prompt_time': '-3'"),
        (put("hardware", 3, "other"), {}, "'hardware': rows of several: device, other; name one"),
        (lambda f: f, {"model": "m-8b"}, "'model': no row has 'm-8b', only m-7b"),
        (lambda f: f, {"tensor_parallel": 4}, "'tensor_parallel': no row has 4, only 2"),
        (lambda f: f.assign(token_time=5e6), {}, "look like microseconds or nanoseconds"),
        (lambda f: f.assign(token_time=5e-5), {}, "look like seconds"),
        (quicker("prompt_time"), {}, r"'prompt_time': .* batch_size 8, .* at batch_size 16 "),
        (quicker("token_time"), {}, r"'token_time': .* at batch_size 16 \(context 192\); a time"),
    ],
)
def test_a_bad_phase_table_is_refused_with_its_place(
    tmp_path: Path, change: Change, settings: dict[str, Any], message: str
) -> None:
    path = tmp_path / "perf_model.csv"
    change(phase_frame()).to_csv(path, index=False)
    with pytest.raises(ProfileError, match=message):
        PhaseTable.read(path, **settings)
