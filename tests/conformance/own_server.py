"""Our policies behind the same interface as the schedulers that they are compared with."""

from dataclasses import replace

from servetwin.policies.block_keys import token_keys
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.presets import find_preset
from servetwin.policies.sequence import Sequence
from tests.conformance.workload import BLOCK_TOKENS, Asked, Step, Workload, accepted


def policies_of(workload: Workload) -> PolicyConfig:
    """Return the preset ``vllm-v1`` with the limits of a workload."""
    preset = PolicyConfig(**find_preset("vllm-v1").policies)
    return replace(
        preset,
        kv_tokens=workload.blocks * BLOCK_TOKENS,
        max_seqs=workload.max_seqs,
        token_budget=workload.token_budget,
        max_model_len=workload.max_model_len,
        prefix_cache=workload.prefix_cache,
        queue_order="priority" if workload.priorities else "fcfs",
        victim="lowest-priority" if workload.priorities else "newest",
        full_prompt_gate=workload.full_prompt_gate,
        long_prefill_tokens=workload.long_prefill_tokens,
        watermark=workload.watermark,
        chunk_prompts=workload.chunk_prompts,
        decide_ahead=workload.decide_ahead,
        draft_rows=workload.draft_rows,
        draft_slots=workload.draft_slots,
    )


class OwnServer:
    """The scheduler of a workload, and a model that answers at once."""

    def __init__(self, config: PolicyConfig) -> None:
        self._scheduler = build_scheduler(config)
        self._decides_ahead = config.decide_ahead
        self._aborted = set[str]()
        """Requests whose clients have hung up, after the next step had been decided."""

    def add(self, asked: Asked) -> None:
        """Queue a request."""
        seq = Sequence(asked.name, 0.0, len(asked.prompt), len(asked.answer), samples=asked.n)
        seq.block_keys = token_keys(asked.prompt + asked.answer, BLOCK_TOKENS)
        seq.names_answer = True
        seq.priority = -asked.priority
        seq.estimated_tokens += asked.stops
        refused = self._scheduler.add(seq)
        assert refused is None, refused

    def abort(self, name: str) -> None:
        """Forget a request, if it is there."""
        self._aborted.add(name)
        if not self._decides_ahead:
            self._abort()

    def busy(self) -> bool:
        """Return whether a request waits or runs."""
        running, waiting, _ = self._scheduler.load()
        return bool(running or waiting)

    def step(self) -> Step | None:
        """Run one step."""
        batch = self._scheduler.schedule(0.0)
        if batch is None:
            self._abort()
            return None
        scheduled = {e.seq.output_id: [e.start, e.rows] for e in batch.entries}
        if isinstance(batch.lockstep, DraftedDecodes):
            _verify(batch.lockstep)
        preempted = sorted(seq.output_id for seq in batch.preempted)
        ended = {seq.request_id for seq in self._scheduler.complete(batch)}
        finished = sorted(ended - self._abort())
        free_blocks = self._scheduler.memory.free_tokens() // BLOCK_TOKENS
        return Step(scheduled, preempted, finished, free_blocks)

    def _abort(self) -> set[str]:
        aborted, self._aborted = self._aborted, set()
        for name in aborted:
            self._scheduler.abort(name)
        return aborted


def _verify(decodes: DraftedDecodes) -> None:
    """Say what comes out of the pass of each decode."""
    for seq in decodes:
        right = accepted(seq.output_id, seq.generated_tokens, decodes.rows - 1)
        decodes.gained(seq, 1 + right)
