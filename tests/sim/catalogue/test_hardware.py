"""Peaks and ridges of published devices."""

import pytest

from servetwin.sim.catalogue.catalogue import find_hardware
from servetwin.sim.catalogue.hardware import Precision


@pytest.mark.parametrize(
    ("name", "precision", "ridge"),
    [
        ("a100-80gb", "bf16", 153),
        ("h100", "bf16", 295),
        ("h200", "bf16", 206),
        ("rtx-4060", "fp32", 56),
    ],
)
def test_ridges(name: str, precision: Precision, ridge: float) -> None:
    device = find_hardware(name)
    assert precision in device.peak_flops_per_s
    assert round(device.ridge_flops_per_byte(precision)) == ridge


def test_the_ridge_of_an_h100_to_seven_digits() -> None:
    assert find_hardware("h100").ridge_flops_per_byte() == pytest.approx(295.2239, abs=5e-5)


@pytest.mark.parametrize(
    ("name", "bf16", "bytes_per_s", "units"),
    [
        ("a100-40gb", 312e12, 1.555e12, 108),
        ("a100-80gb", 312e12, 2.039e12, 108),
        ("h100", 989e12, 3.35e12, 132),
        ("h200", 989e12, 4.8e12, 132),
    ],
)
def test_peaks_of_the_design_notes(name: str, bf16: float, bytes_per_s: float, units: int) -> None:
    device = find_hardware(name)
    assert device.peak("bf16") == bf16
    assert device.memory_bytes_per_s == bytes_per_s
    assert device.compute_units == units


def test_fp8_doubles_an_h100_and_does_nothing_for_an_a100() -> None:
    h100, a100 = find_hardware("h100"), find_hardware("a100-80gb")
    assert h100.peak("fp8") == 1979e12
    assert a100.peak("fp8") == a100.peak("bf16")
