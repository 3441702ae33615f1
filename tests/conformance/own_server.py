"""Our policies behind the same interface as the schedulers that they are compared with."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from servetwin.policies.block_keys import token_keys
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.presets import find_preset
from servetwin.policies.protocols import Scheduler
from servetwin.policies.registry import MEMORIES
from servetwin.policies.schedulers.ahead import DecidedAhead
from servetwin.policies.sequence import Sequence
from tests.conformance.workload import BLOCK_TOKENS, Asked, Step, Workload, accepted


def policies_of(workload: Workload) -> PolicyConfig:
    """Return the preset ``vllm-v1`` with the limits of a workload."""
    preset = PolicyConfig(**find_preset("vllm-v1").policies)
    return replace(
        preset,
        kv="paged" if workload.groups == "full" else "grouped",
        kv_groups=workload.groups,
        kv_tokens=workload.blocks * BLOCK_TOKENS,
        max_seqs=workload.max_seqs,
        token_budget=workload.token_budget,
        max_model_len=workload.max_model_len,
        prefix_cache=workload.prefix_cache,
        queue_order="priority" if workload.priorities else "fcfs",
        victim="lowest-priority" if workload.priorities else "newest",
        full_prompt_gate=workload.full_prompt_gate,
        long_prefill_tokens=workload.long_prefill_tokens,
        long_prefill_adaptive=workload.long_prefill_adaptive,
        queued_tokens_limit=workload.queued_tokens,
        watermark=workload.watermark,
        chunk_prompts=workload.chunk_prompts,
        decide_ahead=workload.decide_ahead,
        draft_rows=workload.draft_rows,
        draft_slots=workload.draft_slots,
        adapter_slots=workload.adapter_slots,
    )


class _HangingUp(DecidedAhead):
    """Tells the driver when it has decided a step without rows, after which clients hang up."""

    def __init__(self, config: PolicyConfig, hang_up: Callable[[], object]) -> None:
        super().__init__(MEMORIES.build(config.kv, config), config)
        self._hang_up = hang_up

    def settle(self, arrived: int | None = None) -> None:
        """Settle, and let clients hang up before another step is decided."""
        super().settle(arrived)
        if arrived is None:
            self._hang_up()

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a request; of its decodes, the token of the step under way is not known yet."""
        assert self.gated_memory is not None
        for seq in [seq for seq in self.decodes if seq.request_id == request_id]:
            self.decodes.leave(seq)
            self.prompts.append(seq)
            self.gated_memory.extend(seq, seq.base_computed_tokens)  # it holds what it held
            seq.base_computed_tokens -= 1
        return super().abort(request_id)


class OwnServer:
    """The scheduler of a workload, and a model that answers at once."""

    def __init__(
        self, config: PolicyConfig, aborts_at_once: bool = False, foreseen: bool = False
    ) -> None:
        self._foreseen = foreseen
        """Whether the scheduler knows of every pass to come what comes out, as in a simulation."""
        self._aborts_late = config.decide_ahead and not aborts_at_once
        self._scheduler: Scheduler = (
            _HangingUp(config, self._abort) if self._aborts_late else build_scheduler(config)
        )
        self._aborted: list[str] = []
        """Requests whose clients have hung up, after the next step had been decided."""

    def add(self, asked: Asked) -> None:
        """Queue a request."""
        seq = Sequence(asked.name, 0.0, len(asked.prompt), len(asked.answer), samples=asked.n)
        adapter = str(asked.adapter or "")
        seq.adapter = adapter or None
        seq.block_keys = token_keys(asked.prompt + asked.answer, BLOCK_TOKENS, adapter)
        seq.names_answer = True
        seq.priority = -asked.priority
        seq.estimated_tokens += asked.stops
        refused = self._scheduler.add(seq)
        assert refused is None or refused.kind == "queue_full", refused

    def abort(self, name: str) -> None:
        """Forget a request, if it is there."""
        self._aborted.append(name)
        if not self._aborts_late:
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
            most, drafts = batch.lockstep.rows - 1, {e.seq: e.padding for e in batch.chunks}
            batch.verify_cut(most, lambda seq: _tokens_of_pass(seq, drafts[seq]))
            (_foresee if self._foreseen else _verify)(batch.lockstep)
        preempted = sorted(seq.output_id for seq in batch.preempted)
        ended = {seq.request_id for seq in self._scheduler.complete(batch)}
        finished = sorted(ended.difference(self._abort()))
        free_blocks = self._scheduler.memory.free_tokens() // BLOCK_TOKENS
        return Step(scheduled, preempted, finished, free_blocks)

    def _abort(self) -> list[str]:
        aborted, self._aborted = self._aborted, []
        for name in aborted:
            self._scheduler.abort(name)
        return aborted


def _tokens_of_pass(seq: Sequence, drafts: int) -> int:
    return 1 + accepted(seq.output_id, seq.generated_tokens, drafts)


def _verify(decodes: DraftedDecodes) -> None:
    """Say what comes out of the pass of each decode."""
    for seq in decodes:
        decodes.gained(seq, _tokens_of_pass(seq, decodes.rows - 1))


def _foresee(decodes: DraftedDecodes) -> None:
    """Say what comes out of all passes of each decode that joined."""
    for seq in tuple(decodes.unjudged):
        known = [seq.generated_tokens]
        while known[-1] < seq.max_tokens:
            right = accepted(seq.output_id, known[-1], decodes.rows - 1)
            known.append(known[-1] + 1 + right)
        decodes.set_schedule(seq, np.array(known) - known[0])
