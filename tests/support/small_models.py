"""Small models whose steps are worked out by hand."""

from typing import Any

from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.layers import Attention, Dense, LatentAttention, Mixer, Recurrence
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.step_time import roofline_step_time

A100 = Hardware(
    name="a100",
    peak_flops_per_s={"bf16": 312e12},
    memory_bytes_per_s=2.039e12,
    memory_bytes=80e9,
    compute_units=108,
    link_bytes_per_s=300e9,
    host_link_bytes_per_s=25e9,
    source="data sheet",
)
FULL = Attention(heads=8, kv_heads=2, head_dim=64)
LATENT = LatentAttention(heads=8, latent_dim=64, rope_dim=16, nope_dim=32, value_dim=32)
STATE = Recurrence(state_size=512 * 16, mixer_params=100_000)


def model_of(*mixers: Mixer, layers: int = 4) -> ModelShape:
    """A small model with as many layers of each mixer."""
    groups = tuple(LayerGroup(count=layers, mixer=m, ffn=Dense(width=1024)) for m in mixers)
    return ModelShape(name="small", width=512, vocabulary=1000, layers=groups, source="made up")


def attention(**changes: Any) -> Attention:
    return FULL.model_copy(update=changes)


masks = st.builds(
    attention,
    window_tokens=st.sampled_from([None, 1, 7, 64, 500]),
    sink_tokens=st.sampled_from([0, 0, 4]),
    dilation=st.sampled_from([1, 1, 2, 5]),
    budget_tokens=st.sampled_from([None, None, 33, 900]),
    rank=st.sampled_from([None, None, 16]),
)
mixers = st.one_of(masks, masks, st.just(FULL), st.just(LATENT), st.just(STATE))


def step_s(deployment: Deployment, contexts: list[int]) -> float:
    """A step of decodes alone."""
    count = len(contexts)
    shape = BatchShape(count, sum(contexts), count, (), 0, 0, tuple(contexts))
    return float(roofline_step_time(deployment).seconds(shape)[0])
