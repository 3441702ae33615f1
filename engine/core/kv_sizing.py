"""How many tokens' keys and values fit beside the weights and the largest step of a device."""

from dataclasses import dataclass
from typing import Protocol

import torch

from servetwin.engine.core.runner import Runner, TokenState
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError


class DeviceMemory(Protocol):
    """What is known of the memory of a device."""

    def total_bytes(self) -> int:
        """Return its size."""

    def foreign_bytes(self) -> int:
        """Return what others hold: other processes, and CUDA itself."""

    def forget_peak(self) -> None:
        """Measure the peak from now on."""

    def peak_bytes(self) -> int:
        """Return the most that tensors have held at once."""


class CudaMemory:
    """The memory of a CUDA device, as the driver and torch count it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def total_bytes(self) -> int:
        """Return its size."""
        return torch.cuda.mem_get_info(self._device)[1]

    def foreign_bytes(self) -> int:
        """Return what others hold: other processes, and CUDA itself."""
        free_bytes, total_bytes = torch.cuda.mem_get_info(self._device)
        return total_bytes - free_bytes - torch.cuda.memory_reserved(self._device)

    def forget_peak(self) -> None:
        """Measure the peak from now on."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int:
        """Return the most that tensors have held at once."""
        return torch.cuda.max_memory_allocated(self._device)


@dataclass(frozen=True, slots=True)
class LargestStep:
    """The largest steps under some policies: a whole prompt, and a decode of every sequence."""

    prompt_tokens: int
    sequences: int

    @classmethod
    def under(cls, policies: PolicyConfig) -> "LargestStep":
        """Return them; a prompt may be as long as the context, and a step as the budget."""
        return cls(max(policies.max_model_len, policies.token_budget), policies.max_seqs)

    def kv_tokens(self, block_tokens: int) -> int:
        """Return the KV memory that they need, at least two blocks for the warm-up."""
        return max(self.prompt_tokens, self.sequences * block_tokens, 2 * block_tokens)

    def run(self, runner: Runner) -> None:
        """Run both, with every row sampled; their tokens mean nothing."""
        params = SamplingParams(max_tokens=1, temperature=1.0, top_p=0.9, seed=0)
        blocks = -(-self.prompt_tokens // runner.store.block_tokens)
        prompt = _sequence("prompt", 0, list(range(blocks)))
        decodes = [_sequence(str(row), row, [row]) for row in range(self.sequences)]
        names = ["prompt", *(seq.request_id for seq in decodes)]
        states = {name: TokenState([0] * self.prompt_tokens, params) for name in names}
        whole = ScheduledSequence(prompt, 0, self.prompt_tokens, samples=True)
        runner.execute(Batch([whole]), states)
        rows = [ScheduledSequence(seq, 0, 1, samples=True) for seq in decodes]
        runner.execute(Batch(rows), states)


def _sequence(name: str, region_start: int, blocks: list[int]) -> Sequence:
    seq = Sequence(name, 0.0, 1, max_tokens=1)
    seq.region_start, seq.blocks = region_start, blocks
    return seq


def kv_tokens_that_fit(
    runner: Runner, policies: PolicyConfig, share: float, memory: DeviceMemory
) -> int:
    """Return how many tokens of KV memory fit into ``share`` of the device, after a trial of the
    largest steps on ``runner``, whose own KV memory may be of any size and is free again.

    Raises ``EngineError`` where weights and steps leave less than one block.
    """
    largest, block_tokens = LargestStep.under(policies), runner.store.block_tokens
    runner.resize(largest.kv_tokens(block_tokens))
    memory.forget_peak()
    largest.run(runner)
    token_bytes = -(-runner.store.bytes // runner.store.tokens)
    needed_bytes = memory.peak_bytes() - runner.store.bytes + memory.foreign_bytes()
    room_bytes = int(share * memory.total_bytes()) - needed_bytes
    blocks = max(room_bytes, 0) // (token_bytes * block_tokens)
    if not blocks:
        raise EngineError(
            f"kv_memory_share: {share:g} of {memory.total_bytes() / 1e9:.1f} GB is less than the "
            f"{needed_bytes / 1e9:.1f} GB that weights, the largest step and other programs take: "
            "give a larger share, a smaller max_model_len or token_budget"
        )
    return blocks * block_tokens
