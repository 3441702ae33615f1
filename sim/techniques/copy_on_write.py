"""Copy-on-write: several answers to one prompt share its blocks until they write to them."""

from sim.techniques.experiment import Experiment
from sim.techniques.kv_requirements import require_whole_contexts
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


class CopyOnWrite(Technique):
    """Saves memory for requests with ``samples``; off, every answer has a copy of the prompt.

    Both sides compute the prompt once, so the difference is memory alone. (What it costs to
    compute it once per answer is a matter of sending k requests, with or without ``prefix-cache``.)
    """

    name = "copy-on-write"
    family = "serving"
    kind = "system"
    lossless = True
    formula = "floor(p / b) + k ceil((p mod b + o) / b) blocks instead of k ceil((p + o) / b)"
    source = "vLLM (Kwon 2023), section 4.4"
    experiment = Experiment(samples=4)

    def apply(self, setup: Setup) -> Setup:
        """Shared; refused where not every token stays."""
        require_whole_contexts(self, setup)
        return setup.with_policies(kv="paged")

    def off(self, setup: Setup) -> Setup:
        """Copied: blocks that are counted alike, but belong to one answer each.

        Raises ``PolicyError`` beside a prefix cache, which shares the prompt as well.
        """
        if setup.policies.prefix_cache:
            raise PolicyError(
                f"{self.name}: with a prefix cache the answers share their prompt anyway; compare "
                "with prefix_cache off"
            )
        require_whole_contexts(self, setup)
        return setup.with_policies(kv="windowed")
