"""Chunked prefill: prompts in pieces beside the decodes, so that no step is long."""

from sim.shapes.part import Count
from sim.techniques.experiment import Experiment
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique

_NO_BUDGET = 1 << 20


class ChunkedPrefill(Technique):
    """Steps of at most ``token_budget`` rows; off, every waiting prompt joins a step whole.

    A prompt in more pieces reads its own earlier keys and values more often
    (``sim.formulas.chunk_reads``), and the weights once per step, as the decodes do anyway.
    """

    name = "chunked-prefill"
    family = "serving"
    kind = "system"
    lossless = True
    formula = "no gap between tokens above t(budget); ceil(n / C) steps, n (n + C) / 2C KV reads"
    source = "Sarathi-Serve (Agrawal 2024), section 4; Dynamic SplitFuse (2023)"
    experiment = Experiment(prompt_tokens=1500, output_tokens=128, longest_tokens=3000)

    token_budget: Count = 512

    def apply(self, setup: Setup) -> Setup:
        """In pieces."""
        return setup.with_policies(batching="chunked", token_budget=self.token_budget)

    def off(self, setup: Setup) -> Setup:
        """Whole, whatever the step becomes."""
        return setup.with_policies(batching="continuous", token_budget=_NO_BUDGET)
