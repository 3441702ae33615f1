"""Graphs without a GPU: every operator that torch runs is recorded, and runs again on a replay.

As in a captured graph, an operator keeps its tensors and its numbers; so what a step computes on
the host, once, is found out in the next step. Kernels outside of torch are not seen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from servetwin.engine.kernels.graphs import Replay

WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}
"""Operators whose result the host waits for."""


@dataclass
class Operation:
    """One call of an operator, and the tensors that it wrote."""

    operator: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    outputs: list[Tensor]

    def run(self) -> None:
        """Run again; what is new memory goes to the memory of the first run."""
        found = tree_leaves(self.operator(*self.arguments, **self.options))
        inputs = {
            storage(one) for one in tree_leaves((self.arguments, self.options)) if tensor(one)
        }
        for old, new in zip(self.outputs, filter(tensor, found), strict=True):
            if storage(old) not in inputs:
                old.copy_(new)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Keeps every operator that runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        assert operator not in WAITS, f"{operator}: a graph cannot wait for the host"
        found = operator(*args, **(kwargs or {}))
        outputs = [one for one in tree_leaves(found) if tensor(one)]
        self.operations.append(Operation(operator, args, kwargs or {}, outputs))
        return found


@dataclass
class RecordedGraphs:
    """A backend of ``GraphBuckets``; ``replays`` counts by number of rows."""

    replays: list[int] = field(default_factory=list)
    captured: list[int] = field(default_factory=list)

    def capture(self, compute: Callable[[], Tensor]) -> Replay:
        recorder = Recorder()
        with recorder:
            output = compute()
        self.captured.append(len(output))

        def replay() -> Tensor:
            self.replays.append(len(output))
            for operation in recorder.operations:
                operation.run()
            return output

        return replay


def tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def storage(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()
