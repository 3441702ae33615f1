"""Build the core with the bundled runner. Of the serving half, only this module needs torch."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.core.core import CoreClock, EngineCore
from servetwin.engine.core.early_exit_runner import EarlyExitRunner
from servetwin.engine.core.runner import Runner, RunnerOptions
from servetwin.engine.core.step_log import StepLogFile, core_facts
from servetwin.engine.core.timekeeper import Timekeeper
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.drafting.speculative_runner import SpeculativeRunner
from servetwin.engine.fit import require_fit
from servetwin.engine.kernels.beat import Beat
from servetwin.engine.kernels.graphs import cuda_graphs
from servetwin.engine.kv.forgetting import kept_tokens
from servetwin.engine.kv.host_memory import kv_movers
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.device import choose_device
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import LoadWeights
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenState, token_state
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError


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
        tokens = [0] * self.prompt_tokens
        states = {seq.request_id: TokenState(tokens, params) for seq in (prompt, *decodes)}
        whole = ScheduledSequence(prompt, 0, self.prompt_tokens, yields_token=True)
        rows = [ScheduledSequence(seq, 0, 1, yields_token=True) for seq in decodes]
        for entries in ([whole], rows):
            runner.execute(Batch(entries), states)


def _sequence(name: str, region_start: int, blocks: list[int], prompt_tokens: int = 1) -> Sequence:
    seq = Sequence(name, 0.0, prompt_tokens, max_tokens=2)
    seq.region_start, seq.blocks, seq.states = region_start, blocks, [blocks[:1]]
    return seq


def kv_tokens_that_fit(
    runner: Runner, policies: PolicyConfig, share: float, memory: CudaMemory
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


def build_core(
    options: ServeOptions, clock: CoreClock | None = None
) -> tuple[EngineCore, dict[str, Any]]:
    """Return the core that ``options`` describe, warmed up, and the facts about it.

    ``clock`` is that of the core that died before it, where there was one.
    Raises ``ServetwinError`` for a model, policies, a device or a log file that does not exist or
    does not fit.
    """
    source, model, policies = find_model(options.model), options.model_config(), options.policies
    scheduler = build_scheduler(policies)
    memory = scheduler.memory
    require_fit(model, policies, options.computation, memory)
    runner = _runner(options, model, memory, source.load_weights(model))
    if options.computation.kv_memory_share:
        policies = _fitted(runner, policies, options.computation.kv_memory_share)
        scheduler = build_scheduler(policies)
        memory = scheduler.memory
    drafts = isinstance(runner, SpeculativeRunner)
    _warm_up(runner, memory, 1 + (policies.draft_rows if drafts else 0))
    graphs = cuda_graphs(options.computation, model, runner.store.keys.device)
    if graphs is not None and policies.kv != "grouped":
        runner.capture_decodes(graphs, policies.max_seqs, policies.max_model_len)
    clock = clock or CoreClock()
    names, described = [model.name], runner.describe()
    names += [name for name, _ in options.computation.adapters]
    facts = core_facts(
        names, model.vocab_size, policies, memory, described, clock, options.step_log
    )
    log = StepLogFile(options.step_log, facts) if options.step_log else None
    core = EngineCore(
        scheduler, runner, prefix_cache=policies.prefix_cache, clock=clock, log=log,
        tokenizer=source.tokenizer(), movers=kv_movers(policies, memory, runner.stores),
        timekeeper=_timekeeper(options.computation, clock) if options.beat else None,
    )  # fmt: skip
    return core, facts


def _timekeeper(computation: Computation, clock: CoreClock) -> Timekeeper:
    device = choose_device(computation.device)
    alone = computation.threads == computation.tensor_parallel == 1
    return Timekeeper(Beat(device), clock, computes_here=alone and device.type == "cpu")


def _fitted(runner: Runner, policies: PolicyConfig, share: float) -> PolicyConfig:
    """Return the policies with as much KV memory as fits; the runner has it too."""
    device = runner.store.keys.device
    if device.type != "cuda" or type(runner) is not Runner:
        raise EngineError(
            "kv_memory_share: is for one CUDA device without drafts; give kv_tokens instead"
        )
    fitted = replace(
        policies, kv_tokens=kv_tokens_that_fit(runner, policies, share, CudaMemory(device))
    )
    runner.resize(build_scheduler(fitted).memory.capacity_tokens)
    return fitted


def _runner(
    options: ServeOptions, model: ModelConfig, memory: KVMemory, load_weights: LoadWeights | None
) -> Runner:
    """Return the runner of the model: over several processes, or with a drafter, where its
    computation says so.
    """
    computation = options.computation
    sizes: RunnerOptions = {
        "layout": memory.layout, "kv_tokens": memory.capacity_tokens,
        "block_tokens": memory.block_tokens, "seed": options.seed, "load_weights": load_weights,
    }  # fmt: skip
    if kept := kept_tokens(model, options.policies, computation):
        sizes["kept"] = kept
        return Runner(model, computation, **sizes)
    if computation.drafts.drafter != "none":
        return SpeculativeRunner(model, computation, **_draft_model(computation.drafts), **sizes)
    if computation.exits:
        return EarlyExitRunner(model, computation, **sizes)
    if computation.tensor_parallel == 1:
        return Runner(model, computation, **sizes)
    # torch.distributed takes a while
    from servetwin.engine.parallel.parallel_runner import ParallelRunner

    make = partial(Runner, model, computation, **sizes)
    return ParallelRunner(make, model, computation, **sizes)


def _draft_model(drafts: Drafts) -> dict[str, Any]:
    """Return the shape and the weights of the model that drafts, if one does."""
    if drafts.drafter != "model":
        return {}
    if drafts.shape is not None:
        return {"draft_config": drafts.shape}
    draft = find_model(drafts.model)
    if draft.config.state_space:
        raise EngineError(
            f"draft model {draft.config.name} has layers with a state, which cannot take back what "
            "the model rejects; give another"
        )
    return {"draft_config": draft.config, "load_draft": draft.load_weights(draft.config)}


def _warm_up(runner: Runner, memory: KVMemory, decode_rows: int) -> None:
    """Run one prefill and one decode, so that no request pays for one-time initialisation."""
    prompt_tokens = min(8, memory.capacity_tokens - decode_rows)
    if prompt_tokens < 1:
        return
    blocks = -(-(prompt_tokens + decode_rows) // memory.block_tokens)
    seq = _sequence("warm-up", 0, list(range(blocks)), prompt_tokens)
    states = {"warm-up": token_state([0] * (prompt_tokens + 1), SamplingParams(max_tokens=2))}
    for start, tokens in ((0, prompt_tokens), (prompt_tokens, decode_rows)):
        runner.execute(Batch([ScheduledSequence(seq, start, tokens, yields_token=True)]), states)
        seq.base_generated_tokens = 1
