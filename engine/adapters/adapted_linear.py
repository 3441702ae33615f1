"""Products to which the rows of a step add the updates of their own adapters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from safetensors import safe_open
from torch import Tensor

from servetwin.engine.adapters.adapter_folder import AdapterFolder
from servetwin.engine.models.device import to_device
from servetwin.engine.models.linear import LinearMap, MakeLinear


@dataclass(frozen=True, slots=True)
class LowRankUpdate:
    """What is added to the outputs from ``start`` on: ``x down.T up.T``; ``up`` has the scale."""

    start: int
    down: Tensor
    """[rank, inputs]."""
    up: Tensor
    """[outputs, rank]."""


class AdapterRows:
    """Which rows of the running step have which adapter."""

    def __init__(self) -> None:
        # Adapter and its rows; None: all of them.
        self.groups: list[tuple[str, Tensor | None]] = []

    def plan(self, adapters: Sequence[str | None], device: torch.device) -> None:
        """Group the rows of a step, each given by its adapter."""
        names = {name: None for name in adapters if name is not None}
        if len(names) == 1 and None not in adapters:
            self.groups = [(name, None) for name in names]
            return
        self.groups = [
            (
                name,
                to_device([row for row, adapter in enumerate(adapters) if adapter == name], device),
            )
            for name in names
        ]


class AdaptedLinear:
    """A product, and the updates of each adapter for its own rows."""

    def __init__(
        self, product: LinearMap, updates: Mapping[str, Sequence[LowRankUpdate]], rows: AdapterRows
    ) -> None:
        self._product, self._updates, self._rows = product, updates, rows
        self.backend = product.backend

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        y = self._product(x)
        for name, rows in self._rows.groups:
            inputs = x if rows is None else x.index_select(0, rows)
            for update in self._updates.get(name, ()):
                place = y.narrow(1, update.start, len(update.up))
                added = inputs @ update.down.T @ update.up.T
                if rows is None:
                    place += added
                else:
                    place.index_add_(0, rows, added)
        return y


def adapted_maker(
    make: MakeLinear,
    folders: Sequence[AdapterFolder],
    rows: AdapterRows,
    dtype: torch.dtype,
    device: torch.device,
) -> MakeLinear:
    """Return what makes products with the updates of all adapters, read once."""
    updates: dict[str, dict[str, list[LowRankUpdate]]] = {}
    for folder in folders:
        with safe_open(folder.file, framework="pt", device="cpu") as file:
            for stored in folder.updates:
                down = file.get_tensor(stored.down_name).to(device, dtype)
                up = file.get_tensor(stored.up_name).float() * folder.scale
                product = f"layers.{stored.layer}.{stored.target.product}"
                product_updates = updates.setdefault(product, {}).setdefault(folder.name, [])
                product_updates.append(
                    LowRankUpdate(stored.target.start, down, up.to(device, dtype))
                )

    def make_adapted(name: str, weight: Tensor) -> LinearMap:
        product = make(name, weight)
        return AdaptedLinear(product, updates[name], rows) if name in updates else product

    return make_adapted
