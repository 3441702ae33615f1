"""The page of kernels shows what the model says."""

import re

from servetwin.sim.step_times.roofline.step_cost import StepCost
from tests.support.kernel_techniques import GQA, TECHNIQUES, ideal
from tests.support.paths import DOCS

PAGE = (DOCS / "techniques" / "kernels.md").read_text()


def test_every_kernel_technique_has_its_section() -> None:
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert {technique.name for technique in TECHNIQUES} <= set(headings)


def test_the_page_shows_what_the_model_says_of_occupancy() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([\d.]+) % \| ([\d.]+) % \|$", PAGE, re.MULTILINE)
    mixer = GQA.layers[0].mixer
    assert len(rows) >= 5
    for sequences, context_tokens, *printed in rows:
        for mode, share in zip(("heads", "split"), printed, strict=True):
            cost = StepCost(ideal(occupancy=mode))
            busy = cost.attention.occupancy(mixer, int(sequences), int(context_tokens))
            assert f"{100 * float(busy):.1f}" == share
