"""What fits into the memory of a device."""

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app import figures
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.memory import DeviceMemory
from servetwin.sim.step_times.roofline.server import base_policies
from servetwin.sim.techniques.registry import build_setup


def memory_of(techniques: tuple[str, ...], context: int) -> DeviceMemory:
    setup = build_setup("llama-3-8b", "h100", techniques)
    return DeviceMemory.of(setup.deployment, setup.policies, context)


@pytest.mark.parametrize(
    ("techniques", "context"), [((), 2048), (("kv-quantisation",), 4096), (("fp8",), 512)]
)
def test_what_fits_is_what_the_simulated_server_has_room_for(
    techniques: tuple[str, ...], context: int
) -> None:
    setup = build_setup("llama-3-8b", "h100", techniques)
    memory = DeviceMemory.of(setup.deployment, setup.policies, context)
    assert memory.sequences == setup.scenario().policies.kv_tokens // context
    parts = memory.parts(memory.sequences)
    assert sum(parts.values()) == pytest.approx(memory.capacity)
    assert parts["weights"] == pytest.approx(setup.deployment.resident_weight_bytes())


def test_windows_and_states_bound_what_a_sequence_takes() -> None:
    short, long = (memory_of(("sliding-window:window_tokens=1024",), c) for c in (1024, 8192))
    assert short == long
    state = memory_of(("state-space",), 8192)
    assert state.kv_per_sequence == 0 < state.state_per_sequence


def test_weights_that_do_not_fit_leave_room_for_nobody() -> None:
    found = Deployment(find_model("llama-2-70b"), find_hardware("h100"))
    memory = DeviceMemory.of(found, base_policies(found.model.max_model_len), 2048)
    assert memory.sequences == 0
    figure = figures.device_memory({"here": memory.parts(1)}, memory.capacity)
    assert sum(trace.x[0] for trace in figure.data) > memory.capacity / 1e9
    assert figure.layout.xaxis.title.text.startswith("memory, GB")
