"""What the policies keep in host memory, and the tensors there."""

from engine.kv.kv_mover import KVMover
from engine.kv.kv_store import KVStore
from engine.kv.prefix_tier import PrefixTier
from engine.kv.swap_space import SwapSpace
from policies.config import PolicyConfig
from policies.kv.paged import PagedKV
from policies.protocols import KVMemory


def kv_movers(policies: PolicyConfig, memory: KVMemory, store: KVStore) -> list[KVMover]:
    """Return what copies keys and values between ``store`` and host memory, as policies decide."""
    movers: list[KVMover] = []
    if policies.host_cache_tokens and isinstance(memory, PagedKV):
        moves = memory.watch_host()
        if moves is not None:
            movers.append(PrefixTier(store, moves))
    if policies.preemption == "swap":
        movers.append(SwapSpace(store))
    return movers
