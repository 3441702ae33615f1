"""From names to a setup: efficiencies of a command line, and techniques in the order given."""

import pytest

from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.techniques.registry import build_setup, parse_efficiency, with_efficiency
from servetwin.workloads.errors import PolicyError


def test_efficiencies_of_a_command_line_replace_the_assumed_ones() -> None:
    changed = with_efficiency(Efficiency(), parse_efficiency("compute=0.7,overhead_s=0"))
    assert (changed.compute, changed.overhead_s) == (0.7, 0.0)
    assert changed.memory == Efficiency().memory


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("compte=0.7", "unknown 'compte'.*compute"),
        ("compute=1.5", r"compute: 1\.5 is not possible; it must be above 0 and at most 1"),
        ("memory=0", "memory: 0 is not possible"),
        ("knee=0.5", r"knee: 0\.5 is not possible; it must be from 1 to 1e\+06"),
        ("overhead_s=nan", "overhead_s: nan is not possible"),
        ("memory=fast", "memory: fast is not possible; it must be above 0 and at most 1"),
    ],
)
def test_impossible_efficiencies_are_named(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        with_efficiency(Efficiency(), parse_efficiency(text))


def test_techniques_change_the_setup_in_the_order_given() -> None:
    setup = build_setup("llama-2-7b", "a100-80gb", ["weight-int8", "sparsity-2-4"])
    assert setup.deployment.decode.name == "2:4 int8"
    turned = build_setup("llama-2-7b", "a100-80gb", ["sparsity-2-4", "weight-int8"])
    assert turned.deployment.decode.name == "int8"
