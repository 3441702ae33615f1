"""The memory of a step in the evidence is what the code foretells."""

import pytest

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.memory import memory_sizes
from servetwin.sim.step_times.roofline.server import base_policies, memory_settings
from servetwin.sim.step_times.roofline.step_memory import LargestStep, ServerMemory, StepBuffers
from tests.support.evidence import rows


def test_the_table_foretells_the_engine_as_the_code_does() -> None:
    model = find_model("small")
    for _, budget, *figures in rows("step-memory"):
        measured, foretold, step = (int(figure.replace(",", "")) for figure in figures)
        largest = LargestStep(int(budget), 8, 1024, draws=False)
        peak = StepBuffers(4.0, fused=False).peak(model, largest)
        sizes = memory_sizes(model, 4096, 4.0, 4.0, peak)
        assert sizes.step_bytes == step
        assert sizes.weight_bytes + sizes.sequence_bytes + step == foretold
        assert foretold == pytest.approx(measured, rel=0.05)


def test_the_room_of_a_real_server() -> None:
    """vLLM's own count on a card of 23.64 GiB; the formula is within 5 % of it."""
    card = find_hardware("rtx-4090").model_copy(update={"memory_bytes": 23.64 * 2**30})
    server = Deployment(find_model("llama-3.1-8b"), card, memory=ServerMemory(0.9))
    found = memory_settings(server, base_policies(server.model.max_model_len)).kv_tokens
    assert found == 42_926 == pytest.approx(41_408, rel=0.05)
