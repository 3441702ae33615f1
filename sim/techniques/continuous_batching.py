"""Continuous batching: members come and go at every step, not with the whole batch."""

from sim.shapes.part import Count
from sim.techniques.experiment import Experiment
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class ContinuousBatching(Technique):
    """At most ``max_seqs`` run; off, batches of ``static_batch`` wait for their longest member.

    A static batch is small where answers must not wait long for others. Under its own load,
    several times what such batches sustain, the price shows: a first token shares its step with
    many decodes, and they with the prompts of newcomers.
    """

    name = "continuous-batching"
    family = "serving"
    kind = "system"
    lossless = True
    formula = "slots used: 1 instead of E[m] / E[max of b m]"
    source = "Orca (Yu 2022), section 3"
    experiment = Experiment(prompt_tokens=16, output_tokens=1024, load=8.0)

    max_seqs: Count = 256
    static_batch: Count = 4

    def apply(self, setup: Setup) -> Setup:
        """Whoever fits joins at the next step."""
        return setup.with_policies(batching="continuous", max_seqs=self.max_seqs)

    def off(self, setup: Setup) -> Setup:
        """Batches that are formed, padded, and held to their end."""
        return setup.with_policies(batching="static", max_seqs=self.static_batch)
