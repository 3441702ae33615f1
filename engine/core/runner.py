"""Runs a batch: the policies' decision in, one new token per sampling sequence out."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Required, TypedDict, Unpack

import torch
from torch import Tensor

from servetwin.engine.adapters.adapted_linear import AdapterRows, adapted_maker
from servetwin.engine.adapters.adapter_folder import read_adapter
from servetwin.engine.attention.choose import WITHOUT_CACHE, attention_backend
from servetwin.engine.attention.rolling import RollingAttention
from servetwin.engine.attention.step_attention import AttentionBackend
from servetwin.engine.attention.table_attention import (
    DecodeRows,
    SpanTables,
    TableAttention,
    pack_rows,
)
from servetwin.engine.core.prompt_logprobs import add_prompt_logprobs, keep_prompt_logprobs
from servetwin.engine.core.step_input import StepInput
from servetwin.engine.core.step_isolation import ExecutorLost
from servetwin.engine.kernels.graphs import GraphBackend, GraphBuckets
from servetwin.engine.kv.forgetting import KeptTokens
from servetwin.engine.kv.kv_store import KVStore, store_type
from servetwin.engine.kv.state_store import StateStep, StateStore
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.device import choose_device, choose_dtype, device_name, to_device
from servetwin.engine.models.linear import MakeLinear, Products
from servetwin.engine.models.model import Decoder
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.rotary import rotary_frequencies
from servetwin.engine.models.tensor_layout import parameters
from servetwin.engine.models.weights import LoadWeights, Weights, random_weights
from servetwin.engine.parallel.shards import shard_config, shard_weights
from servetwin.engine.sampling.distribution import argmax
from servetwin.engine.sampling.sampler import new_tokens
from servetwin.engine.sampling.token_state import NewToken, TokenState
from servetwin.policies.batch import Batch
from servetwin.policies.protocols import KVLayout
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError

if TYPE_CHECKING:
    from servetwin.engine.parallel.tensor_rank import TensorRank


class RunnerOptions(TypedDict, total=False):
    """The size of a runner's KV memory, and where its weights come from."""

    layout: Required[KVLayout]
    kv_tokens: Required[int]
    block_tokens: int
    seed: int
    weight_std: float
    load_weights: LoadWeights | None
    """None: they are drawn at random, by ``seed`` and ``weight_std``."""
    rank: "TensorRank | None"
    """With one, the runner is a slice of the model, which computes its part of every step."""
    kept: KeptTokens | None
    """What the memory keeps of a sequence, where it forgets."""


class Runner:
    """A decoder and its KV memory, on one device."""

    make_decoder: Callable[[ModelConfig, Weights, MakeLinear], Decoder] = Decoder

    def __init__(
        self,
        config: ModelConfig,
        computation: Computation = Computation(),  # noqa: B008, it is frozen
        **options: Unpack[RunnerOptions],
    ) -> None:
        """Load the weights, or draw them at random, and allocate ``kv_tokens`` slots."""
        layout, kv_tokens = options["layout"], options["kv_tokens"]
        block_tokens = options.get("block_tokens", 16)
        rank, kept = options.get("rank"), options.get("kept")
        if min(computation.threads, kv_tokens, block_tokens) < 1:
            raise EngineError("threads, kv_tokens and block_tokens must be at least 1")
        self._config = config
        device = rank.device(computation.device) if rank else computation.device
        self._device = choose_device(device)
        self._dtype = choose_dtype(computation.dtype, self._device)
        if self._device.type == "cpu":
            torch.set_num_threads(computation.threads)
        seed, std = options.get("seed", 0), options.get("weight_std", 0.02)
        load = options.get("load_weights") or partial(random_weights, config, seed=seed, std=std)
        self._formats = (computation.weight_format, computation.kv_format)
        self._products = Products(computation)
        make_linear: MakeLinear = self._products
        self._adapter_rows = AdapterRows()
        self._adapters = [read_adapter(name, Path(at), config) for name, at in computation.adapters]
        if self._adapters:
            make_linear = adapted_maker(
                make_linear, self._adapters, self._adapter_rows, self._dtype, self._device
            )
        weights = load(self._dtype, self._device)
        if rank is not None:
            weights = shard_weights(weights, config, rank.rank, rank.ways)
            make_linear = rank.maker(make_linear)
            config = shard_config(config, rank.ways)
        self._model = type(self).make_decoder(config, weights, make_linear)
        del weights  # what products have packed is free
        self._kv_cache = computation.kv_cache
        name = computation.attention if self._kv_cache else WITHOUT_CACHE
        self._make_attention = partial(
            self._attention_over, config, layout, block_tokens, name, kept
        )
        self._attention = self._make_attention(kv_tokens if self._kv_cache else 1)
        self._graphs: GraphBuckets | None = None
        self.states: StateStore | None = None
        self._left: StateStep | None = None
        if config.state_space:
            self.states = StateStore(
                config, kv_tokens, block_tokens, dtype=self._dtype, device=self._device
            )

    def _attention_over(
        self, config: ModelConfig, layout: KVLayout, block_tokens: int, name: str,
        kept: KeptTokens | None, slots: int,
    ) -> AttentionBackend:  # fmt: skip
        """Return attention over a new KV memory of ``slots``."""
        store = store_type(self._formats[1])(
            config, slots, layout, block_tokens, dtype=self._dtype, device=self._device
        )
        group, windows = config.heads // config.kv_heads, () if kept else config.windows
        backend = attention_backend(name, store, group, windows, self._model.score_rules)
        if kept is None or not self._kv_cache:
            return backend
        return RollingAttention(backend, kept, rotary_frequencies(config, self._device))

    def resize(self, kv_tokens: int) -> None:
        """Allocate other slots; what was stored and captured is lost."""
        self._graphs = None
        del self._attention  # its memory is free before the new one is taken
        self._attention = self._make_attention(kv_tokens if self._kv_cache else 1)

    @torch.inference_mode()
    def capture_decodes(self, backend: GraphBackend, most_rows: int, most_tokens: int) -> None:
        """Compute steps of up to ``most_rows`` decodes alone, of up to ``most_tokens`` tokens, by
        graphs from now on. Only attention over block tables can be captured.
        """
        attention = self._attention
        if not isinstance(attention, TableAttention):
            raise EngineError(f"attention {attention.name!r} cannot be captured: use triton")
        self._tables = SpanTables(self.store)
        every_row = torch.arange(most_rows, device=self._device)

        # Each is computed for the longest context, so the table of rotary positions grows no more.
        def compute(rows: DecodeRows) -> Tensor:
            plan, its_rows = attention.plan_matrix(rows), every_row[: len(rows.matrix)]
            return self._model.forward(*rows.inputs, most_tokens, plan, its_rows)

        self._graphs = GraphBuckets(
            backend, compute, self.store, most_rows=most_rows, most_tokens=most_tokens
        )

    @property
    def store(self) -> KVStore:
        """The KV memory."""
        return self._attention.store

    @property
    def stores(self) -> list[KVStore]:
        """All that holds keys and values of sequences, by the same block tables."""
        return [self.store]

    @torch.inference_mode()
    def execute(self, batch: Batch, states: Mapping[str, TokenState]) -> dict[str, list[NewToken]]:
        """Return the new tokens of every entry that samples, by output id; of ``states`` only
        the logprobs of prompts change.

        Returns when the step is done: on CUDA the host waits once, for the tokens. Raises
        ``ExecutorLost`` where the device has been lost to an error.
        """
        try:
            return self._tokens(batch, states)
        except Exception as error:
            self._check_device(error)
            raise

    def _tokens(self, batch: Batch, states: Mapping[str, TokenState]) -> dict[str, list[NewToken]]:
        logits = self.logits(batch, states)
        if not batch.sampled and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        tokens = sampled_tokens(logits, batch.sampled, states)
        if self._left is not None:
            self._left.commit()
        return tokens

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """Copy what blocks hold to others, all at once, before the next step."""
        if self._kv_cache:
            self.store.copy_blocks(copies)
            if self.states is not None:
                self.states.copy_blocks(copies)

    def _check_device(self, error: Exception) -> None:
        """Raise ``ExecutorLost`` where CUDA can run nothing after ``error``."""
        if self._device.type != "cuda":
            return
        try:
            torch.cuda.synchronize(self._device)
        except RuntimeError:
            raise ExecutorLost(f"the device is lost: {error}") from error

    @torch.inference_mode()
    def logits(self, batch: Batch, states: Mapping[str, TokenState]) -> Tensor:
        """Compute the batch; float32 logits [entries that sample, vocabulary], in batch order.

        Prompts that want logprobs get them on the way.
        """
        step = StepInput.of(batch, states, self._kv_cache)
        if self._adapters:
            self._adapter_rows.plan(_adapters_of_rows(step, states), self._device)
        return keep_prompt_logprobs(self.compute(step), step.shares, states)

    @torch.inference_mode()
    def compute(self, step: StepInput) -> Tensor:
        """Return float32 logits [rows that sample, vocabulary]."""
        replayed = self._replayed(step)
        if replayed is not None:
            return replayed
        if self.states is not None:
            self._left = self.states.plan(step.entries)
        return forward(self._model, self._attention, step, self._left)

    def _replayed(self, step: StepInput) -> Tensor | None:
        """Return the logits of a step that a graph takes; None for any other step."""
        if self._graphs is None or step.decodes < len(step.entries):
            return None
        matrix = pack_rows(self._tables, step.entries, step.token_ids)
        if not self._graphs.fits(matrix):
            return None
        logits = self._graphs.logits(matrix)
        if step.sampled_rows == list(range(len(logits))):
            return logits
        return logits.index_select(0, to_device(step.sampled_rows, self._device))

    def describe(self) -> dict[str, object]:
        """Return model, device, dtype and layout; every ``auto`` is resolved."""
        kv_bytes = self.store.bytes + (self.states.bytes if self.states else 0)
        return {
            "model": self._config.name, "parameters": parameters(self._config),
            "dtype": str(self._dtype).removeprefix("torch."), "device": device_name(self._device),
            "threads": torch.get_num_threads(), "attention": self._attention.name,
            "linear": self._model.linear_backend, "weight_format": self._formats[0],
            "weight_bytes": self._products.weight_bytes + self._model.absorbed_bytes,
            "graph_rows": self._graphs.most_rows if self._graphs else 0, "kv_cache": self._kv_cache,
            "kv_tokens": self.store.tokens if self._kv_cache else 0, "kv_format": self._formats[1],
            "kv_bytes": kv_bytes if self._kv_cache else 0, "layout": self.store.layout,
            "block_tokens": self.store.block_tokens,
        }  # fmt: skip


def forward(
    model: Decoder, attention: AttentionBackend, step: StepInput, states: StateStep | None = None
) -> Tensor:
    """Return float32 logits [rows that sample, vocabulary] of a decoder with its KV memory."""
    device, attends = attention.store.keys.device, bool(attention.store.layers)
    attend = attention.plan(step.entries, step.decodes) if attends else None
    ids, positions, rows = (
        to_device(ints, device) for ints in (step.token_ids, step.positions, step.sampled_rows)
    )
    return model.forward(ids, positions, max(step.positions) + 1, attend, rows, states)


def sampled_tokens(
    logits: Tensor, sequences: list[Sequence], states: Mapping[str, TokenState]
) -> dict[str, list[NewToken]]:
    """Return the next token of every answer of ``sequences``, which have a row of logits each."""
    if not sequences:
        return {}
    if all(states[seq.output_id].is_plain and not seq.begins_samples for seq in sequences):
        likeliest = zip(sequences, argmax(logits).tolist(), strict=True)
        return {seq.output_id: [NewToken(token)] for seq, token in likeliest}
    answers = [
        (place, seq, name) for place, seq in enumerate(sequences) for name in seq.output_ids()
    ]
    rows = [
        states[name].row(len(states[name].token_ids) - seq.prompt_tokens)
        for _, seq, name in answers
    ]
    if len(answers) > len(sequences):
        places = [place for place, _, _ in answers]
        logits = logits.index_select(0, to_device(places, logits.device))
    new = zip(answers, new_tokens(logits, rows), strict=True)
    tokens = {name: [token] for (_, _, name), token in new}
    for seq in sequences:
        add_prompt_logprobs(seq, states[seq.output_id], tokens)
    return tokens


def _adapters_of_rows(step: StepInput, states: Mapping[str, TokenState]) -> list[str | None]:
    """Return the adapter of each row; padding has none that matters."""
    adapters: list[str | None] = []
    for entry in step.entries:
        state = states.get(entry.seq.request_id)
        adapters += [state.params.adapter if state else None] * entry.rows
    return adapters
