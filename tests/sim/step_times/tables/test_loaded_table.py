"""A table with the overheads of a server: exact steps, runs of steps, and what it says."""

from dataclasses import replace

import numpy as np
import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.tables import KernelTable, LoadedTable
from servetwin.sim.step_times.tables.server_overheads import ServerOverheads
from tests.support.macro_steps import assert_macro_steps_change_nothing
from tests.support.made_kernels import MadeKernels
from tests.support.table_levels import kinds

KERNELS = KernelTable(MadeKernels(), "made")
OVERHEADS = ServerOverheads(
    step_s=0.001,
    sequence_s=2e-5,
    prefill_step_s=0.003,
    prefill_chunk_s=0.0005,
    prefill_row_s=1e-6,
    request_s=0.02,
)
TABLE = LoadedTable(KERNELS, OVERHEADS)


@pytest.mark.parametrize(
    ("shape", "added_s"),
    [
        (BatchShape(8, 8 * 513, 8), 0.001 + 8 * 2e-5),
        (BatchShape(0, 0, 0, ((0, 600),)), 0.001 + 2e-5 + 0.003 + 0.0005 + 600e-6),
        (
            BatchShape(64, 64 * 4097, 64, ((0, 100), (500, 50))),
            0.001 + 66 * 2e-5 + 0.003 + 2 * 0.0005 + 150e-6,
        ),
    ],
)
def test_each_step_takes_the_overheads_more(shape: BatchShape, added_s: float) -> None:
    plain_s = KERNELS.seconds(shape)[0]
    assert TABLE.seconds(shape)[0] - plain_s == pytest.approx(added_s, abs=1e-12)
    assert TABLE.scaled(2).seconds(shape)[0] == pytest.approx(2 * (plain_s + added_s))


def test_ranks_wait_for_the_slowest_host() -> None:
    shapes = [BatchShape(8, 8 * 513, 8), BatchShape(0, 0, 0, ((0, 600),)), BatchShape(0, 0, 0)]
    added_s = TABLE.group_seconds(shapes, 2) - KERNELS.group_seconds(shapes, 2)
    assert added_s == pytest.approx(0.001 + 2e-5 + 0.003 + 0.0005 + 600e-6)


def test_a_run_of_steps_keeps_its_pieces() -> None:
    shape = BatchShape(8, 8 * 513, 8)
    plain, loaded = KERNELS.piece(shape, 3), TABLE.piece(shape, 3)
    assert (loaded.slope, loaded.steps) == (plain.slope, plain.steps)
    assert_macro_steps_change_nothing(TABLE)


def test_without_overheads_nothing_changes() -> None:
    shape = BatchShape(8, 8 * 513, 8, ((0, 100),))
    assert LoadedTable(KERNELS, ServerOverheads()).piece(shape) == KERNELS.piece(shape)


def test_it_says_its_overheads_and_rests_on_the_table() -> None:
    assert TABLE.summary()[:-1] == KERNELS.summary()
    assert TABLE.summary()[-1].startswith("overheads: step_s 1 ms, sequence_s 0.02 ms, ")
    assert TABLE.log_deviation() == KERNELS.log_deviation()
    assert TABLE.held_out_errors() == KERNELS.held_out_errors()
    assert kinds(TABLE, [1, 64], [10, 6400]) == ["interpolated"] * 2


@pytest.mark.parametrize(
    ("source", "origin"), [("given", "not stated"), ("fitted on servers", "measured by others")]
)
def test_the_time_of_the_overheads_has_its_own_origin(source: str, origin: str) -> None:
    """Two steps of a prompt of 600 rows in two chunks beside eight decodes."""
    table = LoadedTable(KERNELS, replace(OVERHEADS, source=source))
    one = BatchShape(8, 8 * 513, 8, ((0, 400), (0, 200)))
    plain_s, loaded_s = KERNELS.seconds(one)[0], table.seconds(one)[0]
    row = {
        "start_s": 0.0, "end_s": 2 * loaded_s, "steps": 2, "decode_sequences": 8,
        "prefill_chunks": 2, "rows": 608,
    }  # fmt: skip
    steps = {name: np.array([value]) for name, value in row.items()}
    shares = table.row_origins(steps)
    assert set(shares) == {"kernel tables", origin}
    assert shares["kernel tables"] == pytest.approx([plain_s / loaded_s], abs=1e-9)
    assert sum(shares.values()) == pytest.approx([1.0])
