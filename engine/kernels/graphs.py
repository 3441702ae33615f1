"""Steps of decodes as captured graphs, one for each bucket of batch sizes.

A graph replays the same kernels on the same memory: so its inputs are one matrix that stays where
it is, rows beyond the batch are idle, and nothing on the host depends on a context.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from servetwin.engine.attention.table_attention import (
    COLUMNS,
    DecodeRows,
    TableAttention,
    idle_rows,
)
from servetwin.engine.kernels.choose_operators import has_triton
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.device import to_device
from servetwin.engine.models.model_config import ModelConfig

# The logits of every row, from tensors alone.
Compute = Callable[[DecodeRows], Tensor]
# Runs a captured graph; the tensor is the same in every call.
Replay = Callable[[], Tensor]
_DOUBLED_UP_TO = 64


class GraphBackend(Protocol):
    """Captures what a function launches on the device."""

    def capture(self, compute: Callable[[], Tensor]) -> Replay:
        """Return what launches the same again, on the same memory."""


def bucket_sizes(most_rows: int) -> list[int]:
    """Return the batch sizes that get a graph: doubled up to 64, then in steps of 64."""
    doubled = [1 << power for power in range(_DOUBLED_UP_TO.bit_length())]
    steps = range(2 * _DOUBLED_UP_TO, most_rows, _DOUBLED_UP_TO)
    return [size for size in (*doubled, *steps) if size < most_rows] + [most_rows]


class GraphBuckets:
    """Graphs of ``compute`` for up to ``most_rows`` decodes of up to ``most_tokens`` tokens."""

    def __init__(
        self,
        backend: GraphBackend,
        compute: Compute,
        store: KVStore,
        *,
        most_rows: int,
        most_tokens: int,
    ) -> None:
        spans = -(-most_tokens // store.span_tokens)
        self._store = store
        self._inputs = to_device(
            idle_rows(store, most_rows, COLUMNS + spans).ravel(), store.keys.device
        ).view(most_rows, -1)
        self._graphs = {
            size: backend.capture(
                partial(compute, DecodeRows(self._inputs[:size], store.span_tokens))
            )
            for size in reversed(bucket_sizes(most_rows))  # the largest first: others fit beside it
        }

    @property
    def most_rows(self) -> int:
        """The size of the largest bucket."""
        return len(self._inputs)

    def fits(self, matrix: NDArray[np.int64]) -> bool:
        """Return whether a graph takes these rows with their tables."""
        rows, columns = self._inputs.shape
        return len(matrix) <= rows and matrix.shape[1] <= columns

    def logits(self, matrix: NDArray[np.int64]) -> Tensor:
        """Return the logits of the rows, until the next call."""
        rows, columns = matrix.shape
        size = min(size for size in self._graphs if size >= rows)
        padded = np.concatenate((matrix, idle_rows(self._store, size - rows, columns)))
        self._inputs[:size, :columns].copy_(to_device(padded, self._inputs.device))
        return self._graphs[size]()[:rows]


class CudaGraphs:
    """Captures graphs that share one pool of memory, for they never run at the same time."""

    def __init__(self) -> None:
        self._first: torch.cuda.CUDAGraph | None = None

    def capture(self, compute: Callable[[], Tensor]) -> Replay:
        """Run ``compute`` once, so that kernels are compiled and chosen; then capture it."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types there
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._first.pool() if self._first else None):
            output = compute()
        self._first = self._first or graph

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay


def cuda_graphs(
    computation: Computation, config: ModelConfig, device: torch.device
) -> CudaGraphs | None:
    """Return what captures the decodes of ``computation``; None where nothing can.

    The host has a part in steps with experts (it counts their rows), adapters, drafts, early
    exit and several processes.
    """
    reads_tables = computation.attention in ("auto", TableAttention.name) and has_triton()
    drafts = computation.drafts.drafter != "none"
    host_steps = config.experts or computation.adapters or drafts or computation.exits
    one_device = computation.tensor_parallel == 1
    alone = one_device and computation.kv_cache and config.plain_scores
    captured = reads_tables and alone and not host_steps
    return CudaGraphs() if device.type == "cuda" and computation.graphs and captured else None
