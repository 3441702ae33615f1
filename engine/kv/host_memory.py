"""What the policies keep in host memory, and the tensors there."""

from collections.abc import Sequence as Listed

import torch

from servetwin.engine.kv.kv_mover import KVMover
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.kv.prefix_tier import PrefixTier
from servetwin.engine.kv.room import require_room
from servetwin.engine.kv.swap_space import SwapSpace
from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.protocols import KVMemory


def kv_movers(policies: PolicyConfig, memory: KVMemory, stores: Listed[KVStore]) -> list[KVMover]:
    """Return what copies keys and values between ``stores`` and host memory, as policies decide.

    The first store is the model's; a draft model has no prefixes on the host.
    """
    movers: list[KVMover] = []
    token_bytes = sum(store.bytes // store.tokens for store in stores)
    swapped = policies.host_kv_tokens if policies.preemption == "swap" else 0
    tokens = swapped + policies.host_cache_tokens
    require_room("tokens in host memory", tokens, token_bytes, torch.device("cpu"))
    if policies.host_cache_tokens and isinstance(memory, PagedKV):
        moves = memory.watch_host()
        if moves is not None:
            movers.append(PrefixTier(stores[0], moves))
    if policies.preemption == "swap":
        movers += [SwapSpace(store) for store in stores]
    return movers
