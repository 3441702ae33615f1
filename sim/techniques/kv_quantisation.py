"""Keys and values in 8 bits: attention reads half, twice as many tokens fit."""

from typing import Literal

from sim.step_times.roofline.formats import KV_FORMATS
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


class KVQuantisation(Technique):
    """Keys and values stored in ``format`` and turned to bf16 as attention reads them.

    int8 has an fp32 scale per head of a token. Constant states (SSM) stay as they are.
    """

    name = "kv-quantisation"
    family = "numbers"
    kind = "algorithm"
    lossless = False
    formula = "KV bytes per element 1 (fp8) or 1.03 (int8) instead of 2"
    source = "KVQuant (Hooper 2024); fp8 as in vLLM"

    format: Literal["fp8", "int8"] = "fp8"

    def apply(self, setup: Setup) -> Setup:
        """Smaller keys and values; refused for a model that keeps none."""
        model = setup.deployment.model
        if not model.kv_elements_per_token():
            raise PolicyError(
                f"{self.name}: {model.name} keeps no keys and values per token, only a state"
            )
        return setup.with_deployment(kv_element_bytes=KV_FORMATS[self.format])
