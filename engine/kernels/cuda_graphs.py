"""Graphs of CUDA: a step of hundreds of kernels becomes one launch."""

from collections.abc import Callable

import torch
from torch import Tensor

from engine.attention.table_attention import TableAttention
from engine.kernels.graph_buckets import Replay
from engine.kernels.triton_here import has_triton
from engine.models.computation import Computation


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


def cuda_graphs(computation: Computation, device: torch.device) -> CudaGraphs | None:
    """Return what captures the decodes of ``computation``; None where nothing can."""
    captured = computation.attention in ("auto", TableAttention.name) and has_triton()
    wanted = computation.graphs and computation.kv_cache and captured
    return CudaGraphs() if device.type == "cuda" and wanted else None
