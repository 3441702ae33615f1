"""Graphs of CUDA: a step of hundreds of kernels becomes one launch."""

from collections.abc import Callable

import torch
from torch import Tensor

from servetwin.engine.attention.table_attention import TableAttention
from servetwin.engine.kernels.choose_operators import has_triton
from servetwin.engine.kernels.graph_buckets import Replay
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig


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
    captured = reads_tables and computation.kv_cache and one_device and not host_steps
    return CudaGraphs() if device.type == "cuda" and computation.graphs and captured else None
