"""A runner whose steps are computed by several ranks together."""

from typing import Any

from torch import Tensor

from servetwin.engine.core.runner import Runner
from servetwin.engine.core.samples import BlockCopies
from servetwin.engine.core.step_input import StepInput
from servetwin.engine.core.step_isolation import ExecutorLost
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.parallel.followers import Followers, MakeRunner
from servetwin.engine.parallel.shards import shard_config
from servetwin.engine.parallel.tensor_rank import TensorRank


class ParallelRunner(Runner):
    """Rank 0: it samples, and lets the other ranks compute the same steps.

    A rank that fails loses the step of all: the ranks no longer stand at the same sum.
    """

    def __init__(
        self, make: MakeRunner, config: ModelConfig, computation: Computation, **options: Any
    ) -> None:
        """Start the other ranks by ``make``; the rest is as for ``Runner``.

        Raises ``EngineError`` where the model cannot be divided so.
        """
        ways = computation.tensor_parallel
        shard_config(config, ways)
        rank = TensorRank(0, ways)
        self._followers = Followers(make, ways, rank.device(computation.device))
        super().__init__(config, computation, rank=rank, **options)

    def compute(self, step: StepInput) -> Tensor:
        """Return the logits of a step that all ranks compute."""
        try:
            self._followers.send(step)
            return super().compute(step)
        except Exception as error:
            raise ExecutorLost(f"a rank of tensor parallelism failed: {error}") from error

    def copy_blocks(self, copies: BlockCopies) -> None:
        """Copy keys and values from block to block, on all ranks."""
        self._followers.send(copies)
        super().copy_blocks(copies)

    def close(self) -> None:
        """End the other ranks."""
        self._followers.close()

    def describe(self) -> dict[str, object]:
        """Return the facts of rank 0, and how many ranks there are."""
        return super().describe() | {"tensor_parallel": self._followers.ways}
