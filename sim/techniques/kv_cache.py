"""The KV cache itself: without it, every token computes its whole context anew."""

from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class KVCache(Technique):
    """Keep keys and values: n + m - 1 token passes for m tokens, not m n + m (m - 1) / 2."""

    name = "kv-cache"
    family = "memory"
    kind = "system"
    lossless = True
    formula = "n + m - 1 token passes instead of m n + m (m - 1) / 2"
    source = "Pope 2022, Efficiently Scaling Transformer Inference"

    def apply(self, setup: Setup) -> Setup:
        """With the cache."""
        return setup.with_deployment(kv_cache=True)

    def off(self, setup: Setup) -> Setup:
        """Every pass is a prompt as long as the context; nothing is kept."""
        return setup.with_deployment(kv_cache=False)


def token_passes(prompt_tokens: int, output_tokens: int, cached: bool) -> int:
    """Tokens that go through the model to answer one request."""
    n, m = prompt_tokens, output_tokens
    return n + m - 1 if cached else m * n + m * (m - 1) // 2
