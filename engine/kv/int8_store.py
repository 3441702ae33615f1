"""Keys and values in int8, with a scale for each head of a token."""

import torch
from torch import Tensor

from servetwin.engine.formats.rounded_weights import round_rows
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.protocols import KVLayout
from servetwin.workloads.errors import EngineError


class Int8KVStore(KVStore):
    """A ``KVStore`` that rounds rows as they are written and widens them as they are read.

    A head of d elements takes d + 4 bytes (its scale is a float32). Scales lie in slots as the
    codes do, so that blocks are shared, moved and taken to the host with them.
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
        super().__init__(config, kv_tokens, layout, block_tokens, dtype=torch.int8, device=device)
        self.dtype = dtype
        self.key_scales = torch.empty(self.keys.shape[:3], device=device)
        one = self._one_tensor
        self.value_scales = self.key_scales if one else torch.empty_like(self.key_scales)

    @property
    def bytes(self) -> int:
        """Size of all codes and scales."""
        scale_bytes = self.key_scales[:, 0].nbytes * (1 if self._one_tensor else 2)
        return super().bytes + scale_bytes * self.tokens

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that is stored, [layers, slots, ...] each."""
        scales = (self.key_scales, self.value_scales)
        return (*super().tensors, *(scales[:1] if self._one_tensor else scales))

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


_STORES: dict[str, type[KVStore]] = {"as-dtype": KVStore, "int8": Int8KVStore}


def kv_store(
    kv_format: str,
    config: ModelConfig,
    kv_tokens: int,
    layout: KVLayout,
    block_tokens: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> KVStore:
    """Return the store of the format called ``kv_format``; raise ``EngineError`` for no such."""
    if kv_format not in _STORES:
        raise EngineError(f"unknown kv_format {kv_format!r}: use {' or '.join(_STORES)}")
    return _STORES[kv_format](config, kv_tokens, layout, block_tokens, dtype=dtype, device=device)
