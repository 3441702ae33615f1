"""Models and setups that tests of attention techniques share."""

from policies.batch import BatchShape
from sim.shapes.catalogue import find_hardware, find_model
from sim.shapes.model import ModelShape
from sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from sim.step_times.roofline.efficiency import IDEAL, Efficiency
from sim.step_times.roofline.step_time import roofline_step_time
from sim.techniques.attention import (
    MultiHeadLatent,
)
from sim.techniques.setup import Setup

A100 = find_hardware("a100-80gb")
LLAMA = find_model("llama-2-7b")
MLA = MultiHeadLatent(latent_dim=512, rope_dim=64, nope_dim=128, value_dim=128)


def ideal(model: ModelShape, efficiency: Efficiency = IDEAL) -> Setup:
    """On an A100 that does what its data sheet says."""
    return Setup.of(Deployment(model, A100, efficiency, kernels=IDEAL_KERNELS))


def step_s(setup: Setup, decodes: int, context: int) -> float:
    """A step of equal decodes."""
    contexts = (context,) * decodes
    shape = BatchShape(decodes, decodes * context, decodes, (), 0, 0, contexts)
    return float(roofline_step_time(setup.deployment).seconds(shape)[0])
