"""Doubtful tables: which checks find which fault, and which real tables they find."""

from dataclasses import dataclass

import numpy as np
import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.quantisation import Quantisation
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables import kernel_library as library
from servetwin.sim.step_times.tables.plausibility import doubts_of


@dataclass(frozen=True)
class Steps:
    """Steps of decodes that take a time by their number only."""

    milliseconds: dict[int, float]

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        return np.full(steps, 1e-3 * self.milliseconds[shape.decode_sequences])


def of(*milliseconds: float) -> Steps:
    return Steps(dict(zip((1, 2, 4, 8, 16), milliseconds, strict=True)))


@pytest.mark.parametrize(
    ("table", "least_s", "wider", "says"),
    [
        (of(8, 8.2, 9, 11, 14), 0.004, [of(12, 12, 12, 13, 15)], ()),
        (of(8, 7.8, 7.9, 8, 14), 0, [], ()),
        (of(39, 33, 28, 28.5, 31), 0, [], ("a step of 1 takes 39 ms, of 4 28 ms",)),
        (of(8, 9, 14, 12, 15), 0, [], ("a step of 4 takes 14 ms, of 8 12 ms",)),
        (
            of(3, 3, 3, 4, 5), 0.004, [],
            ("a step of one sequence takes 3 ms, its weights alone 4 ms",),
        ),
        (
            of(12, 13, 14, 15, 18), 0.001, [of(20, 21, 22, 23, 24), of(8, 9, 10, 12, 20)],
            ("a step of one sequence takes 12 ms, with a part in bf16 8 ms",),
        ),
    ],
)  # fmt: skip
def test_a_fault_is_said_with_its_figures(
    table: Steps, least_s: float, wider: list[Steps], says: tuple[str, ...]
) -> None:
    assert doubts_of(table, least_s, wider) == says


@pytest.mark.parametrize(
    ("gpu", "says"),
    [("b300", "a step of 1 takes 39 ms, of 4 28.2 ms"), ("b200", "a step of 1 takes 37.1 ms")],
)
def test_tables_known_to_be_wrong_are_found_and_left_out(gpu: str, says: str) -> None:
    """Servers of MiniMax-M2.5 take 8 ms there (InferenceMAX)."""
    if library.installed_package() is None:
        pytest.skip("no package with kernel tables is installed: pip install servetwin[kernels]")
    fp8 = Quantisation(gemm="fp8-block", experts="fp8-block")
    table = library.open_kernels("minimax-m2.5", gpu, "vllm", Layout(tp=4), fp8)
    assert f"(not gemm fp8_block: {says}" in table.description
    assert table.seconds(BatchShape(4, 4 * 1025, 4))[0] == pytest.approx(0.0069, rel=0.1)
