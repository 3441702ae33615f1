"""Kernels of eager PyTorch, as Hugging Face's Transformers ran in 2023; presets imitate them."""

from dataclasses import replace

from servetwin.sim.techniques.setup import Setup

LAYER_S = 1 / 25.5 / 32
"""A layer of Llama-7B, launched from Python, whatever the device: 25.5 tokens/s
("Accelerating Generative AI II", pytorch.org, 2023)."""
GROWTH_SLOWDOWN = 3.0
"""Keys and values that grow by copying are read, written, and read by the attention."""


def with_eager_kernels(setup: Setup) -> Setup:
    """Return ``setup`` run layer by layer from Python: nothing fused, scores in memory.

    Python launches a layer while the device reads weights; only what it takes longer is added.
    """
    deployment, efficiency = setup.deployment, setup.deployment.efficiency
    bytes_per_s = deployment.hardware.memory_bytes_per_s * efficiency.memory
    weights_s = deployment.resident_weight_bytes() / deployment.parallel.devices / bytes_per_s
    python_s = deployment.model.layer_count * LAYER_S
    overhead_s = max(efficiency.overhead_s, python_s - weights_s)
    slow = setup.with_deployment(efficiency=replace(efficiency, overhead_s=overhead_s))
    return slow.with_kernels(fused=False, flash_attention=False, attention_slowdown=GROWTH_SLOWDOWN)
