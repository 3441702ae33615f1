"""A runner whose steps are computed by several ranks together, and the processes of the others."""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Unpack

import torch.distributed as dist
from torch import Tensor

from servetwin.engine.core.runner import Runner, RunnerOptions
from servetwin.engine.core.step_input import StepInput
from servetwin.engine.core.step_isolation import BlockCopies, ExecutorLost
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.parallel.shards import shard_config
from servetwin.engine.parallel.tensor_rank import TensorRank
from servetwin.policies.batch import ScheduledSequence
from servetwin.policies.sequence import Sequence
from servetwin.workloads.program.child import Child, start_child

# How long a rank may take to end.
_END_S = 5.0


# Makes the runner of a ``rank`` in its process; it must be picklable.
MakeRunner = Callable[..., Any]


class Followers:
    """The processes of ranks 1, 2, ...; they end with this one."""

    def __init__(self, make: MakeRunner, ways: int, device: str) -> None:
        """Start the processes and meet them."""
        self.ways = ways
        self._children: list[Child] = []
        # A late rank reads the addresses of the others there after this one has met it.
        self._folder = Path(tempfile.mkdtemp(prefix="servetwin-ranks-"))
        meeting = self._folder / "meeting"
        for number in range(1, ways):
            arguments = make, TensorRank(number, ways), meeting, device
            name = f"servetwin-rank-{number}"
            self._children.append(
                start_child(f"{__name__}:_follow", *arguments, name=name, daemon=True)
            )
        TensorRank(0, ways).meet(meeting, device)

    def send(self, message: StepInput | BlockCopies) -> None:
        """Let every rank compute a step, or copy blocks."""
        if isinstance(message, StepInput):
            message = _bare(message)
        for _, connection in self._children:
            connection.send(message)

    def close(self) -> None:
        """End the processes, and this one's place among them."""
        for _, connection in self._children:
            connection.close()
        for process, _ in self._children:
            process.join(_END_S)
            process.kill()
        dist.destroy_process_group()
        shutil.rmtree(self._folder, ignore_errors=True)


def _follow(
    connection: Connection, make: MakeRunner, rank: TensorRank, meeting: Path, device: str
) -> None:
    rank.meet(meeting, rank.device(device))
    runner = make(rank=rank)
    with contextlib.suppress(EOFError, OSError):
        while True:
            message = connection.recv()
            if isinstance(message, StepInput):
                runner.compute(message)
            else:
                runner.copy_blocks(message)
    sys.exit(0)


def _bare(step: StepInput) -> StepInput:
    """Return the step with sequences that have their blocks, and nothing of the scheduler's."""
    return replace(step, entries=[_entry(entry) for entry in step.entries], shares=[])


def _entry(entry: ScheduledSequence) -> ScheduledSequence:
    seq = Sequence(entry.seq.request_id, 0.0, entry.seq.prompt_tokens, entry.seq.max_tokens)
    seq.blocks, seq.region_start = entry.seq.blocks, entry.seq.region_start
    return entry._replace(seq=seq)


class ParallelRunner(Runner):
    """Rank 0: it samples, and lets the other ranks compute the same steps.

    A rank that fails loses the step of all: the ranks no longer stand at the same sum.
    """

    def __init__(
        self,
        make: MakeRunner,
        config: ModelConfig,
        computation: Computation,
        **options: Unpack[RunnerOptions],
    ) -> None:
        """Start the other ranks by ``make``; the rest is as for ``Runner``.

        Raises ``EngineError`` where the model cannot be divided so.
        """
        ways = computation.tensor_parallel
        shard_config(config, ways)
        rank = TensorRank(0, ways)
        self._followers = Followers(make, ways, rank.device(computation.device))
        options["rank"] = rank
        super().__init__(config, computation, **options)

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
