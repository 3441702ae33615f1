"""The engine on both sides of a technique."""

import pytest

from servetwin.app.serving.techniques import CannotRun
from servetwin.app.verdict.effects.sides import sides_of
from servetwin.sim.techniques.registry import Toggles, find_technique
from servetwin.workloads.errors import PolicyError
from tests.support.known_effects import CONFIG, HARDWARE, OPTIONS


def test_both_sides_are_those_of_the_technique() -> None:
    technique = find_technique("dynamic-insertion:slots=4")
    found = sides_of(OPTIONS, technique, Toggles(), HARDWARE)
    without, with_it = found.without.options.policies, found.with_it.options.policies
    assert (without.batching, without.max_seqs) == ("static", 4)
    assert (with_it.batching, with_it.max_seqs) == ("insertion", 4)
    assert without.kv_tokens == with_it.kv_tokens == CONFIG.kv_tokens
    assert found.name == "dynamic-insertion:slots=4"
    assert not found.changes_step_times


def test_other_techniques_are_off_on_both_sides() -> None:
    others = Toggles.of([], ["paged-attention"])
    found = sides_of(OPTIONS, find_technique("continuous-batching"), others, HARDWARE)
    kinds = [side.options.policies for side in (found.without, found.with_it)]
    assert [config.kv for config in kinds] == ["contiguous", "contiguous"]
    assert [config.batching for config in kinds] == ["static", "continuous"]


def test_what_cannot_run_or_changes_nothing_is_refused() -> None:
    with pytest.raises(CannotRun, match="technique cascade: the bundled engine cannot run it"):
        sides_of(OPTIONS, find_technique("cascade:small=tiny"), Toggles(), HARDWARE)
    with pytest.raises(PolicyError, match="technique tensor-parallel: it changes nothing of this"):
        sides_of(OPTIONS, find_technique("tensor-parallel:ways=1"), Toggles(), HARDWARE)


@pytest.mark.parametrize(
    ("technique", "compute"), [("weight-int8", "fp32"), ("smooth-quant:scales=dynamic", "int8")]
)
def test_weight_only_formats_change_bytes_and_not_products(technique: str, compute: str) -> None:
    found = sides_of(OPTIONS, find_technique(technique), Toggles(), HARDWARE)
    before, after = (side.setup.deployment.decode for side in (found.without, found.with_it))
    assert (before.compute, after.compute) == ("fp32", compute)
    assert after.weight_bytes == 1
    assert found.with_it.options.computation.weight_format != OPTIONS.computation.weight_format
