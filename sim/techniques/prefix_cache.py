"""A prefix cache: prompts that begin alike compute and keep their beginning once."""

from policies.config import Eviction, PrefixIndex
from sim.techniques.experiment import Experiment
from sim.techniques.kv_requirements import require_whole_contexts
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class PrefixCache(Technique):
    """Found by ``index`` (a tree, or hashes of blocks), given up in the order of ``eviction``."""

    name = "prefix-cache"
    family = "serving"
    kind = "system"
    lossless = True
    formula = "hit tokens / prompt tokens = (K - 1) s / K n for K prompts of n that share s"
    source = "SGLang (Zheng 2024), section 3; ChunkedAttention (Ye 2024)"
    experiment = Experiment(prompt_tokens=128, shared_tokens=512)

    index: PrefixIndex = "radix"
    eviction: Eviction = "lru"

    def apply(self, setup: Setup) -> Setup:
        """With the cache; refused where not every token stays."""
        require_whole_contexts(self, setup)
        return setup.with_policies(
            prefix_cache=True, prefix_index=self.index, eviction=self.eviction
        )

    def off(self, setup: Setup) -> Setup:
        """Every prompt computes and keeps all of itself."""
        return setup.with_policies(prefix_cache=False, host_cache_tokens=0)
