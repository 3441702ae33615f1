"""The computed figures of rooflines in the evidence, and the tables that commands print."""

import re
import shlex
from pathlib import Path

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.decode_latency import RooflineEstimate, ideal_deployment
from servetwin.sim.step_times.roofline.efficiency import DEFAULT
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from tests.support.command import servetwin
from tests.support.evidence import rows
from tests.support.formulas.block_shapes import block_shapes
from tests.support.formulas.intensities import attention_intensity, matmul_intensity
from tests.support.formulas.phases import Phases, activation_bytes, decode_traffic_ratio
from tests.support.paths import DOCS

EXAMPLES = [
    path.read_text().partition("\n")
    for path in sorted((Path(__file__).parent / "printed").iterdir())
]
H100, A100 = find_hardware("h100"), find_hardware("a100-80gb")
LLAMA, GPT_3 = find_model("llama-2-7b"), find_model("gpt-3-175b")
PHASES = Phases(GPT_3, 1, 1000, 250)
STEPS = {
    "decode, B = 1, l = 128": BatchShape(1, 128, 1),
    "decode, B = 32, l = 1024": BatchShape(32, 32 * 1024, 32),
    "decode, B = 128, l = 1024": BatchShape(128, 128 * 1024, 128),
    "prompt of 512": BatchShape(0, 0, 0, ((0, 512),)),
    "prompt of 2048": BatchShape(0, 0, 0, ((0, 2048),)),
}
INTENSITIES = {
    "decode attention, MHA, any batch": attention_intensity(1, 1024, 4096, batch=64),
    "4096 x 11008 product, 1 row": matmul_intensity(1, 4096, 11008),
    "4096 x 11008 product, 64 rows": matmul_intensity(64, 4096, 11008),
    "4096 x 11008 product, 328 rows": matmul_intensity(328, 4096, 11008),
    "4096 x 11008 product, 4096 rows": matmul_intensity(4096, 4096, 11008),
    "prompt attention on the chip, 1024 tokens": attention_intensity(1024, 1024, 4096),
}


def table(name: str) -> dict[str, list[str]]:
    """The rows of a table: further cells by the first one."""
    return {first: rest for first, *rest in rows(name)}


@pytest.mark.parametrize(("line", "_", "printed"), EXAMPLES)
def test_examples_are_what_is_printed(line: str, _: str, printed: str) -> None:
    done = servetwin(*shlex.split(line)[1:])
    assert (done.code, done.out) == (0, printed)


def test_the_picture_has_the_device_s_figures() -> None:
    reached = {
        name: [
            f"{intensity:.4g}",
            f"{min(H100.peak('bf16'), intensity * H100.memory_bytes_per_s) / 1e12:.4g}",
            "compute" if intensity > H100.ridge_flops_per_byte() else "memory",
        ]
        for name, intensity in INTENSITIES.items()
    }
    assert table("roofline") == reached


def test_what_is_assumed_to_be_achieved() -> None:
    page = (DOCS / "techniques.md").read_text()
    (lines,) = re.findall(r"^\| assumed .*\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
    assumed = {name.split("`")[1]: cells for name, *cells in split}
    assert {name: float(cells[0]) for name, cells in assumed.items()} == {
        name: getattr(DEFAULT, name) for name in ("compute", "memory", "overhead_s", "knee")
    }
    spreads = [float(cells[1]) for cells in assumed.values() if cells[1]]
    assert spreads == [DEFAULT.compute_spread, DEFAULT.memory_spread, DEFAULT.overhead_spread]


def test_ideal_steps() -> None:
    deployment = ideal_deployment(LLAMA, A100)
    steps = {name: RooflineEstimate.of(deployment, shape) for name, shape in STEPS.items()}
    assert table("ideal-steps") == {
        name: [
            f"{1e3 * step.seconds:.3f}",
            "compute" if step.compute_s > step.memory_s else "memory",
        ]
        for name, step in steps.items()
    }


def test_how_much_one_max_hides() -> None:
    deployment = ideal_deployment(LLAMA, A100)
    shape = BatchShape(64, 64 * 2048, 64, ((0, 512),))
    shorter = 1 - RooflineEstimate.of(deployment, shape).seconds / float(
        roofline_step_time(deployment).seconds(shape)[0]
    )
    assert f"{100 * shorter:.0f}" == "30"


def test_shapes_of_a_block() -> None:
    prompt, decode = block_shapes(LLAMA, 512, 512), block_shapes(LLAMA, 1, 600)
    assert table("block-shapes") == {
        name: [f"{s[name][0]:,} x {s[name][1]:,}" for s in (prompt, decode)] for name in prompt
    }


def test_the_two_phases() -> None:
    assert table("phases") == {
        "passes": ["1", f"{PHASES.generation_passes}"],
        "one activation tensor, bytes": [f"{activation_bytes(GPT_3, n):,}" for n in (1000, 1)],
        "FLOPs of products, B = 1": [
            f"{flops:.6g}" for flops in (PHASES.context_flops, PHASES.generation_flops)
        ],
        "FLOP per byte of weights, B = 1": [
            f"{i:g}" for i in (PHASES.context_intensity, PHASES.generation_intensity)
        ],
        f"bound on an A100 (ridge {A100.ridge_flops_per_byte():.0f})": ["compute", "memory"],
    }
    assert PHASES.generation_intensity < A100.ridge_flops_per_byte() < PHASES.context_intensity


def test_traffic_of_batches() -> None:
    assert table("traffic") == {
        str(batch): [f"{100 * (decode_traffic_ratio(GPT_3, batch, 1000) - 1):+.0f} %"]
        for batch in (8, 32, 64)
    }
