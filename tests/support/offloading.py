"""Deployments whose weights or keys do not fit the device."""

from dataclasses import replace

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.step_times.roofline.formats import BF16
from servetwin.sim.techniques.memory import KVOffload, WeightOffload
from servetwin.sim.techniques.setup import Setup

A100 = find_hardware("a100-80gb")


def ideal(model: str = "llama-2-7b", hardware: str = "a100-80gb") -> Setup:
    """Devices that do what their data sheet says."""
    return Setup.of(
        Deployment(find_model(model), find_hardware(hardware), IDEAL, kernels=IDEAL_KERNELS)
    )


def phone(resident_gb: float) -> Setup:
    """A 13B model of 7.7 GB behind storage of 4 GB/s; computing is not what takes time."""
    target = find_model("llama-2-13b")
    device = A100.model_copy(
        update={
            "name": "phone",
            "memory_bytes_per_s": 1e18,
            "peak_flops_per_s": {"bf16": 1e21},
            "memory_bytes": 12e9,
        }
    )
    form = replace(BF16, name="4.733 bits", weight_bytes=7.7e9 / target.params())
    setup = Setup.of(
        Deployment(target, device, IDEAL, prefill=form, decode=form, kernels=IDEAL_KERNELS)
    )
    return WeightOffload(resident_gb=resident_gb, gb_per_s=4).apply(setup)


def opt_13b() -> Deployment:
    """At 25 GB/s to the host, and 60 % of 312 TFLOP/s."""
    setup = KVOffload(gb_per_s=25).apply(ideal("opt-13b"))
    return replace(setup.deployment, efficiency=replace(IDEAL, compute=0.6))
