"""The tensors that hold keys and values, and where in them a sequence's positions are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from servetwin.engine.formats.rounded_weights import round_rows
from servetwin.engine.kv.room import no_room, require_room
from servetwin.engine.models.device import to_device, to_host
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.batch import ScheduledSequence
from servetwin.policies.protocols import KVLayout
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError

# Layer to keys and values of one sequence, each [kv heads, 1, context, head dim].
ReadContext = Callable[[int], tuple[Tensor, Tensor]]


class KVStore:
    """Keys and values of every layer in flat token slots: [layers, slots, kv heads, key dim].

    The latents of latent attention are one tensor, which is read as keys and as values.

    Position p of a sequence is in slot ``blocks[p // block_tokens] * block_tokens + p %
    block_tokens`` (paged) or ``region_start + p`` (contiguous). Which slots belong to which
    sequence is decided by the KV memory of the policies; nothing is checked here. One slot more
    than ``tokens`` is spare: rows that belong to no sequence write to it.
    """

    def __init__(
        self,
        config: ModelConfig,
        kv_tokens: int,
        layout: KVLayout,
        block_tokens: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (config.stored_layers, kv_tokens + 1, config.kv_heads, config.key_dim)
        self._one_tensor = config.latent is not None
        # Of the rows that are written and read.
        self.dtype = dtype
        token_bytes = config.kv_bytes_per_token(dtype.itemsize)
        require_room("KV tokens", kv_tokens, token_bytes, device)
        try:  # not filled: on the CPU a page becomes real when it is first written
            self.keys = torch.empty(shape, dtype=dtype, device=device)
            self.values = self.keys if self._one_tensor else torch.empty_like(self.keys)
        except RuntimeError:
            raise no_room("KV tokens", kv_tokens, token_bytes, device) from None
        # All that is stored, [layers, slots, ...] each.
        self.tensors: tuple[Tensor, ...] = (
            (self.keys,) if self._one_tensor else (self.keys, self.values)
        )
        self._layers_per_store = config.kv_sharing
        self.layers = self._by_layer(self.keys, self.values)
        self.layout, self.block_tokens = layout, block_tokens
        self.tokens = self.spare_slot = kv_tokens
        self._offsets = np.arange(block_tokens)

    @property
    def bytes(self) -> int:
        """Size of all that is stored."""
        return sum(stored[:, 0].nbytes for stored in self.tensors) * self.tokens

    def slots(self, seq: Sequence, start: int, stop: int) -> NDArray[np.int64]:
        """Return the slots of positions ``start .. stop - 1``."""
        if self.layout == "contiguous":
            return np.arange(seq.region_start + start, seq.region_start + stop)
        return self.block_slots(seq.blocks, start, stop)

    def block_slots(self, table: list[int], start: int, stop: int) -> NDArray[np.int64]:
        """Return the slots of positions of a block table (paged memory)."""
        first_block = start // self.block_tokens
        blocks = np.array(table[first_block : -(-stop // self.block_tokens)], dtype=np.int64)
        slots = (blocks[:, None] * self.block_tokens + self._offsets).ravel()
        skipped = first_block * self.block_tokens
        return slots[start - skipped : stop - skipped]

    def slot(self, seq: Sequence, position: int) -> int:
        """Return the slot of one position."""
        if self.layout == "contiguous":
            return seq.region_start + position
        block, offset = divmod(position, self.block_tokens)
        return seq.blocks[block] * self.block_tokens + offset

    @property
    def span_tokens(self) -> int:
        """Slots that follow one another: those of a block, or all where a sequence has a region."""
        return self.keys.shape[1] if self.layout == "contiguous" else self.block_tokens

    def span_starts(self, region_start: int, blocks: list[int]) -> list[int]:
        """Return the first slot of each span of a sequence that is there."""
        if self.layout == "contiguous":
            return [region_start]
        return [block * self.block_tokens for block in blocks]

    def first_slots(self, entries: list[ScheduledSequence]) -> list[int]:
        """Return the slot of the first position of each entry."""
        if self.layout == "contiguous":
            return [seq.region_start + start for seq, start, *_ in entries]
        size = self.block_tokens
        return [seq.blocks[start // size] * size + start % size for seq, start, *_ in entries]

    @property
    def shares_layers(self) -> bool:
        """Whether neighbouring layers share keys and values."""
        return self._layers_per_store > 1

    def _by_layer(self, keys: Tensor, values: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the pair of every layer; neighbours that share have the same one."""
        pairs = zip(keys.unbind(), values.unbind(), strict=True)
        return [pair for pair in pairs for _ in range(self._layers_per_store)]

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store rows [rows, kv heads, head dim] in ``slots``."""
        stored_keys, stored_values = self.layers[layer]
        stored_keys.index_copy_(0, slots, keys)
        if not self._one_tensor:
            stored_values.index_copy_(0, slots, values)

    def take(self, slots: NDArray[np.int64]) -> list[Tensor]:
        """Return a copy of some slots in host memory; from a GPU it is on its way."""
        index = to_device(slots, self.keys.device)
        return [to_host(stored.index_select(1, index)) for stored in self.tensors]

    def put(self, slots: NDArray[np.int64], rows: list[Tensor]) -> None:
        """Write back what ``take`` returned, to other slots."""
        index = to_device(slots, self.keys.device)
        for stored, values in zip(self.tensors, rows, strict=True):
            stored.index_copy_(1, index, values.to(stored.device, non_blocking=True))

    def move(self, sources: list[int], targets: list[int]) -> None:
        """Copy the keys and values of slots to others, in all layers at once."""
        start, stop = (to_device(slots, self.keys.device) for slots in (sources, targets))
        for stored in self.tensors:
            stored.index_copy_(1, stop, stored.index_select(1, start))

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """Copy whole blocks, (source, target) each; all are read before one is written."""
        slots = np.array(copies).T[:, :, None] * self.block_tokens + self._offsets
        self.move(*slots.reshape(2, -1).tolist())

    def read(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return copies of rows [slots, kv heads, head dim] in the format of the computation."""
        stored_keys, stored_values = self.layers[layer]
        keys = stored_keys.index_select(0, slots)
        return keys, keys if self._one_tensor else stored_values.index_select(0, slots)

    def as_read(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows as they would come back from here."""
        return keys, values

    def scales(self, layer: int) -> tuple[Tensor, ...]:
        """Return the scales [slots, kv heads] of stored keys and stored values, or none."""
        del layer
        return ()

    def context(self, seq: Sequence, stop: int, start: int = 0) -> ReadContext:
        """Return a reader of positions ``start .. stop - 1``: a view if possible, else a gather."""
        if self.layout == "contiguous" and self.dtype == self.keys.dtype:
            region = slice(seq.region_start + start, seq.region_start + stop)
            keys, values = (
                stored[:, region].unsqueeze(2).transpose(1, 3)
                for stored in (self.keys, self.values)
            )
            return self._by_layer(keys, values).__getitem__
        slots = to_device(self.slots(seq, start, stop), self.keys.device)

        def gather(layer: int) -> tuple[Tensor, Tensor]:
            keys, values = self.read(layer, slots)
            first = heads_first(keys)
            return first, first if values is keys else heads_first(values)

        return gather


class Int8KVStore(KVStore):
    """A ``KVStore`` that rounds rows as they are written and widens them as they are read.

    A head of d elements takes d + 4 bytes (its scale is a float32). Scales lie in slots as the
    codes do, so that blocks are shared, moved and taken to the host with them.
    """

    def __init__(self, *sizes: Any, dtype: torch.dtype, device: torch.device) -> None:
        """Take the arguments of ``KVStore``; ``dtype`` is that of the rows."""
        super().__init__(*sizes, dtype=torch.int8, device=device)
        self.dtype = dtype
        scales = [torch.empty(stored.shape[:3], device=device) for stored in self.tensors]
        self.key_scales, self.value_scales = scales[0], scales[-1]
        self.tensors += (*scales,)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Round rows [rows, kv heads, head dim] and store them in ``slots``."""
        if self._one_tensor:
            codes, scales = _rounded(keys)
            self.key_scales[layer].index_copy_(0, slots, scales)
            super().write(layer, slots, codes, codes)
            return
        both, scales = _rounded(torch.stack((keys, values)))
        self.key_scales[layer].index_copy_(0, slots, scales[0])
        self.value_scales[layer].index_copy_(0, slots, scales[1])
        super().write(layer, slots, both[0], both[1])

    def read(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows [slots, kv heads, head dim], widened."""
        codes, value_codes = super().read(layer, slots)
        keys = _widened(codes, self.key_scales[layer].index_select(0, slots), self.dtype)
        if self._one_tensor:
            return keys, keys
        scales = self.value_scales[layer].index_select(0, slots)
        return keys, _widened(value_codes, scales, self.dtype)

    def as_read(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows as they would come back: a prompt sees the same keys whole and in chunks."""
        rounded = _widened(*_rounded(keys), self.dtype)
        return rounded, rounded if values is keys else _widened(*_rounded(values), self.dtype)

    def scales(self, layer: int) -> tuple[Tensor, ...]:
        """Return the scales [slots, kv heads] of the stored keys and of the stored values."""
        return self.key_scales[layer], self.value_scales[layer]


def _rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    codes, scales = round_rows(rows)
    return codes.to(torch.int8), scales.squeeze(-1)


def _widened(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    return (codes * scales.unsqueeze(-1)).to(dtype)


def store_type(kv_format: str) -> type[KVStore]:
    """Return the store of the format called ``kv_format``; raise ``EngineError`` for no such."""
    stores = {"as-dtype": KVStore, "int8": Int8KVStore}
    if kv_format not in stores:
        raise EngineError(f"unknown kv_format {kv_format!r}: use {' or '.join(stores)}")
    return stores[kv_format]


def heads_first(rows: Tensor) -> Tensor:
    """View [tokens, kv heads, head dim] as [kv heads, 1, tokens, head dim]."""
    return rows.unsqueeze(1).transpose(0, 2)
