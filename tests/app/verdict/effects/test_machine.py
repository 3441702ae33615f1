"""The machine as a device."""

import pytest

from servetwin.app.verdict.effects import sides as machine
from servetwin.sim.catalogue.hardware import Hardware


def test_the_rates_that_were_measured_are_the_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_rates = pytest.importorskip("servetwin.engine.machine_rates")
    found = torch_rates.MachineRates({"fp32": 3e10, "bf16": 9e10}, 2e10, 3e-6)
    monkeypatch.setattr(torch_rates, "machine_rates", lambda threads: found)
    hardware = machine.measured_hardware(2)
    assert isinstance(hardware, Hardware)
    assert hardware.peak("bf16") == 9e10
    assert (hardware.memory_bytes_per_s, hardware.kernel_launch_s) == (2e10, 3e-6)
    assert hardware.compute_units == 2


def test_processes_that_share_a_model_have_the_link_that_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch_rates = pytest.importorskip("servetwin.engine.machine_rates")
    link_rates = pytest.importorskip("servetwin.engine.machine_rates")
    found = torch_rates.MachineRates({"fp32": 3e10, "bf16": 9e10}, 2e10, 3e-6)
    monkeypatch.setattr(torch_rates, "machine_rates", lambda threads: found)
    monkeypatch.setattr(link_rates, "link_rates", lambda: link_rates.LinkRates(4e-4, 1e9))
    hardware = machine.measured_hardware(1, ways=2)
    assert (hardware.link_latency_s, hardware.link_bytes_per_s) == (4e-4, 1e9)
    assert machine.measured_hardware(1).link_bytes_per_s == 2e10
