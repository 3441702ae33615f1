"""How a batch is cut: micro-batches in a pipeline, groups of devices with own sequences."""

from dataclasses import dataclass

from servetwin.sim.step_times.roofline.deployment import Parallel


@dataclass(frozen=True, slots=True)
class BatchPieces:
    """The pieces of a batch on devices that share it; numbers of sequences are expectations."""

    parallel: Parallel

    def micro_batches(self, sequences: float) -> float:
        """Return the micro-batches in flight, not more than there are sequences."""
        return max(1.0, min(self.parallel.micro_batches or self.parallel.pipeline, sequences))

    def groups(self, sequences: float) -> float:
        """Return the groups of devices that have a sequence of each micro-batch."""
        return self.parallel.spread(sequences / self.micro_batches(sequences))

    def count(self, sequences: float) -> float:
        """Return the pieces of a batch: its micro-batches, in each group of devices."""
        return self.micro_batches(sequences) * self.groups(sequences)

    def stage_times(self, micro_batches: float, has_prefill: bool) -> float:
        """Return the times of a stage until all micro-batches are through.

        max(p, m) in steady state, m + p - 1 with a prompt (the bubble of GPipe).
        """
        stages = self.parallel.pipeline
        return micro_batches + stages - 1 if has_prefill else max(float(stages), micro_batches)

    def share(self, sequences: float, has_prefill: bool) -> float:
        """Return the share of the attention to all sequences that lies on the path of a step.

        That is one over the stages that are busy, and over the groups that have a sequence.
        """
        stages, micro_batches = self.parallel.pipeline, self.micro_batches(sequences)
        stage_times = self.stage_times(micro_batches, has_prefill)
        return stage_times / (micro_batches * stages) / self.groups(sequences)
