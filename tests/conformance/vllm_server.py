"""vLLM's own scheduler and KV manager, without a model. Run by the interpreter that has vLLM.

``python -m tests.conformance.vllm_server`` reads workloads, one a line, and writes vLLM's version,
then the steps of each workload on a line.
"""

import json
import sys
import tempfile
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import vllm
from vllm.config import (
    CacheConfig,
    LoRAConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)  # fmt: skip
from vllm.exceptions import MaxQueuedTokensError
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.output_processor import OutputProcessor
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from tests.conformance.drive import drive
from tests.conformance.workload import BLOCK_TOKENS, Asked, Step, Workload, accepted

_HASH = get_hash_fn_by_name("sha256")
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 1 << 20,
    "torch_dtype": "float32",
}  # fmt: skip


class VllmServer:
    """The scheduler of a workload, and a model that gives the answers that are known before."""

    def __init__(self, workload: Workload, model: ModelConfig) -> None:
        self._scheduler = _scheduler(workload, model)
        self._hasher = get_request_block_hasher(BLOCK_TOKENS, _HASH)
        self._answers: dict[str, list[int]] = {}
        self._requests: dict[str, Request] = {}
        self._batches: deque[_Batch] = deque()
        """Decided, not completed yet: the one that runs and, where it decides ahead, the next."""
        self._most_batches = 1 + workload.decide_ahead
        self._drafts = workload.draft_rows
        self._frontend = OutputProcessor(None, log_stats=False)
        self._client = SimpleNamespace(
            scheduler_config=SchedulerConfig(
                workload.max_model_len, False, max_num_queued_tokens=workload.queued_tokens
            ),
            admission_stats=None,
            get_num_queued_tokens=self._frontend.get_num_queued_tokens,
            _record_admission_rejection=lambda reason: None,
        )

    def add(self, asked: Asked) -> None:
        """Queue a request."""
        arrival_s = float(len(self._answers))
        try:
            AsyncLLM.check_admission(self._client, asked.n)
        except MaxQueuedTokensError:
            return
        most = len(asked.answer) + asked.stops
        stop = [asked.answer[-1]] if asked.stops else None
        params = SamplingParams(max_tokens=most, ignore_eos=True, stop_token_ids=stop)
        for number in range(asked.n):
            name = f"{asked.name}#{number}" if number else asked.name
            self._answers[name] = asked.answer
            request = Request(
                name, asked.prompt, params, None, arrival_time=arrival_s, priority=asked.priority,
                block_hasher=self._hasher, lora_request=_adapter(asked),
            )  # fmt: skip
            self._frontend.request_states[name] = SimpleNamespace(
                prompt_len=len(asked.prompt), is_prefilling=True
            )
            self._requests[name] = request
            self._scheduler.add_request(request)

    def abort(self, name: str) -> None:
        """Forget a request, if it is there."""
        for each in self._answers:  # one by one: vLLM puts several into a set, without an order
            if each.partition("#")[0] == name:
                self._frontend.request_states.pop(each, None)
                self._scheduler.finish_requests(each, RequestStatus.FINISHED_ABORTED)

    def busy(self) -> bool:
        """Return whether a request waits or runs, or a step does."""
        return bool(self._scheduler.get_num_unfinished_requests() or self._batches)

    def step(self) -> Step | None:
        """Run until a step with rows has ended, as the loop of vLLM's engine does.

        A step without rows takes no time; what it preempts belongs to the next.
        """
        preempted: list[str] = []
        while self.busy():
            if self._batches:
                self._batches[-1].free_blocks = self._free_blocks()
            if self._scheduler.has_requests():
                self._batches.append(self._decide())
                if len(self._batches) < self._most_batches:
                    continue
            batch = self._batches.popleft()
            ended = self._complete(batch)
            if self._most_batches == 1:
                batch.free_blocks = self._free_blocks()
            preempted += batch.decided.preempted_req_ids or ()
            if batch.entries:
                return Step(batch.entries, sorted(preempted), sorted(ended), batch.free_blocks)
            if not (preempted or any(one.entries for one in self._batches)):
                return None
        return None

    def _decide(self) -> "_Batch":
        decided = self._scheduler.schedule()
        rows = dict(decided.num_scheduled_tokens)
        requests = self._scheduler.requests
        entries = {name: [requests[name].num_computed_tokens - n, n] for name, n in rows.items()}
        return _Batch(decided, entries)

    def _free_blocks(self) -> int:
        return int(self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def _complete(self, batch: "_Batch") -> list[str]:
        """Answer every request whose tokens are all computed; return the ended ones."""
        names = list(batch.entries)
        drafted = batch.decided.scheduled_spec_decode_tokens
        tokens = [self._next_tokens(name, batch, drafted.get(name, [])) for name in names]
        indices = {name: index for index, name in enumerate(names)}
        for name, entry in batch.entries.items():  # where it begins, whatever came of the last pass
            entry[0] = min(entry[0], self._requests[name].num_tokens - 1)
        output = ModelRunnerOutput(req_ids=names, req_id_to_index=indices, sampled_token_ids=tokens)
        answers = self._scheduler.update_from_output(batch.decided, output)
        if self._drafts and names and self._most_batches == 1:
            proposed = [[1] * self._drafts for _ in names]
            self._scheduler.update_draft_token_ids(DraftTokenIds(names, proposed))
        outputs = [one for client in answers.values() for one in client.outputs]
        for one in outputs:
            if one.new_token_ids and one.request_id in self._frontend.request_states:
                self._frontend.request_states[one.request_id].is_prefilling = False
        ended = [one.request_id for one in outputs if one.finished]
        left = {name.partition("#")[0] for name in self._scheduler.requests}
        return list({name.partition("#")[0] for name in ended} - left)

    def _next_tokens(self, name: str, batch: "_Batch", drafts: list[int]) -> list[int]:
        request = self._scheduler.requests.get(name)
        if request is None or sum(batch.entries[name]) < request.num_tokens:
            return []
        known, right = request.num_output_tokens, 0
        if drafts and name not in batch.padded:
            right = accepted(name, known, len(drafts))
        return self._answers[name][known : known + 1 + right]


@dataclass
class _Batch:
    """A step as decided: its rows as (first position, positions), and what is free behind it."""

    decided: Any
    entries: dict[str, list[int]]
    free_blocks: int = 0

    @property
    def padded(self) -> set[str]:
        """Those that begin in this step: their drafts are placeholders, which nobody drafted."""
        resumed: set[str] = self.decided.scheduled_cached_reqs.resumed_req_ids
        return resumed.union([new.req_id for new in self.decided.scheduled_new_reqs])


def _scheduler(workload: Workload, model: ModelConfig) -> Scheduler:
    blocks = workload.blocks + 1  # vLLM keeps one for itself
    scheduling = SchedulerConfig(
        max_model_len=workload.max_model_len,
        is_encoder_decoder=False,
        max_num_seqs=workload.max_seqs + workload.spare_seqs,
        max_num_active_seqs=workload.max_seqs if workload.spare_seqs else None,
        max_num_batched_tokens=workload.token_budget,
        long_prefill_token_threshold=workload.long_prefill_tokens,
        long_prefill_token_threshold_adaptive=workload.long_prefill_adaptive,
        policy="priority" if workload.priorities else "fcfs",
        scheduler_reserve_full_isl=workload.full_prompt_gate,
        watermark=workload.watermark,
        enable_chunked_prefill=workload.chunk_prompts,
    )
    caching = CacheConfig(
        block_size=BLOCK_TOKENS,
        enable_prefix_caching=workload.prefix_cache,
        mamba_cache_mode="align" if "state" in workload.groups else "none",
    )
    model.max_model_len = workload.max_model_len
    drafting = None
    if workload.draft_rows:
        drafting = SpeculativeConfig(
            method="ngram", num_speculative_tokens=workload.draft_rows, prompt_lookup_max=2,
            target_model_config=model, target_parallel_config=ParallelConfig(),
        )  # fmt: skip
    slots = workload.adapter_slots
    adapters = LoRAConfig(max_lora_rank=8, max_loras=slots) if slots else None
    config = VllmConfig(
        model_config=model, scheduler_config=scheduling, cache_config=caching,
        speculative_config=drafting, lora_config=adapters,
    )  # fmt: skip
    config.cache_config.num_gpu_blocks = blocks
    scheduling.async_scheduling = workload.decide_ahead  # which vLLM turns off on CPUs
    groups = enumerate(workload.groups.split(","))
    memory = KVCacheConfig(
        num_blocks=blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec([f"layer {n}"], _layers(group)) for n, group in groups],
    )
    kind = AsyncScheduler if workload.decide_ahead else Scheduler
    scheduler = kind(
        vllm_config=config,
        kv_cache_config=memory,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_TOKENS,
        hash_block_size=BLOCK_TOKENS,
    )
    scheduler.num_lookahead_tokens = workload.draft_slots
    return scheduler


def _adapter(asked: Asked) -> LoRARequest | None:
    number = asked.adapter
    return LoRARequest(f"adapter {number}", number, f"/adapters/{number}") if number else None


def _layers(group: str) -> KVCacheSpec:
    """Return what a group of layers keeps, in blocks of one size."""
    kind, _, tokens = group.partition(":")
    if kind == "state":
        return MambaSpec(
            block_size=BLOCK_TOKENS, shapes=((4096,),), dtypes=(torch.float32,),
            mamba_cache_mode="align",
        )  # fmt: skip
    attention: dict[str, Any] = {
        "block_size": BLOCK_TOKENS, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float32,
    }  # fmt: skip
    if kind == "window":
        return SlidingWindowSpec(sliding_window=int(tokens), **attention)
    if kind == "chunk":
        return ChunkedLocalAttentionSpec(attention_chunk_size=int(tokens), **attention)
    return FullAttentionSpec(**attention)


def main(lines: Iterable[str]) -> None:
    """Answer each workload with its steps."""
    init_none_hash(_HASH)
    answers = sys.stdout
    sys.stdout = sys.stderr  # so that nothing of vLLM's lies between the answers
    print(json.dumps(vllm.__version__), file=answers, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        model = ModelConfig(model=folder, skip_tokenizer_init=True)
        for line in lines:
            workload = Workload.from_json(line)
            steps = drive(workload, VllmServer(workload, model))
            print(json.dumps(steps), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.stdin)
