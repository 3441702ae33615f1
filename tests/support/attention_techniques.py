"""Models and setups that tests of attention techniques share."""

from typing import Any

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.layers import Attention, Dense
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL, Efficiency
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.attention import MultiHeadLatent
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique

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


def applied(model: ModelShape, *techniques: Technique) -> ModelShape:
    """What techniques make of a model."""
    setup = ideal(model)
    for technique in techniques:
        setup = technique.apply(setup)
    return setup.deployment.model


def layers_of(count: int, **changes: Any) -> ModelShape:
    """A 7B-like model with so many layers."""
    mixer = Attention(heads=32, kv_heads=32, head_dim=128).model_copy(update=changes)
    group = LayerGroup(count=count, mixer=mixer, ffn=Dense(width=11008))
    return LLAMA.model_copy(update={"layers": (group,)})
