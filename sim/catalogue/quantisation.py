"""The number formats of a checkpoint, by the part of the model that has them."""

from typing import Literal

from servetwin.sim.catalogue.entry import FrozenModel

# ``fp8`` has a scale per tensor or channel, ``fp8-block`` per 128 x 128 weights (DeepSeek-V3);
# ``int8`` has 8-bit activations too; ``w4a16`` is GPTQ or AWQ with a scale per 128 weights,
# ``w4a16-g32`` has one per 32 (Kimi K2); ``nvfp4`` has fp8 scales per 16 weights, ``mxfp4`` powers
# of two per 32 (gpt-oss).
WeightFormat = Literal["bf16", "fp8", "fp8-block", "int8", "w4a16", "w4a16-g32", "nvfp4", "mxfp4"]
CacheFormat = Literal["bf16", "fp8"]


class Quantisation(FrozenModel):
    """Formats of dense products, of experts, of keys and values, and of attention's products."""

    gemm: WeightFormat = "bf16"
    experts: WeightFormat = "bf16"
    kv: CacheFormat = "bf16"
    attention: CacheFormat = "bf16"
