"""The occupancy in the evidence is that of the model."""

from servetwin.sim.step_times.roofline.step_cost import StepCost
from tests.support.evidence import rows
from tests.support.kernel_techniques import GQA, ideal


def test_occupancy_is_that_of_the_model() -> None:
    mixer = GQA.layers[0].mixer
    for sequences, context_tokens, *printed in rows("occupancy"):
        for mode, share in zip(("heads", "split"), printed, strict=True):
            cost = StepCost(ideal(occupancy=mode))
            busy = cost.attention.occupancy(mixer, int(sequences), int(context_tokens))
            assert f"{100 * float(busy):.1f}" == share.removesuffix(" %")
