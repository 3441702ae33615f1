"""Find a policy by its registered name, or load one's own as ``path.py:Class``."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import cast

from policies.config import PolicyConfig
from policies.invariants import InvariantChecked
from policies.kv.contiguous import ContiguousKV
from policies.kv.paged import PagedKV
from policies.kv.windowed import WindowedKV
from policies.old_methods import adopt_old_methods
from policies.protocols import KVMemory, Scheduler
from policies.schedulers.chunked import ChunkedPrefill
from policies.schedulers.continuous import ContinuousBatching
from policies.schedulers.insertion import DynamicInsertion
from policies.schedulers.prefill_first import PrefillFirst
from policies.schedulers.speculative import SpeculativeBatching
from policies.schedulers.static import StaticBatching
from workloads.errors import PolicyError, did_you_mean

SchedulerFactory = Callable[[KVMemory, PolicyConfig], Scheduler]
MemoryFactory = Callable[[PolicyConfig], KVMemory]

SCHEDULERS: dict[str, SchedulerFactory] = {
    "static": StaticBatching,
    "insertion": DynamicInsertion,
    "continuous": ContinuousBatching,
    "prefill-first": PrefillFirst,
    "chunked": ChunkedPrefill,
    "speculative": SpeculativeBatching,
}
MEMORIES: dict[str, MemoryFactory] = {
    "contiguous": ContiguousKV,
    "paged": PagedKV,
    "windowed": WindowedKV,
}


def build_scheduler(config: PolicyConfig) -> Scheduler:
    """The scheduler of ``config``, over the memory of ``config``.

    One's own policies run under ``InvariantChecked``.

    Raises ``PolicyError`` for an unknown name or a class that cannot be loaded.
    """
    memory = cast(MemoryFactory, find_policy("kv", config.kv, MEMORIES))(config)
    build = cast(SchedulerFactory, find_policy("batching", config.batching, SCHEDULERS))
    scheduler = build(memory, config)
    if config.batching in SCHEDULERS and config.kv in MEMORIES:
        return scheduler
    return InvariantChecked(scheduler, config)


def find_policy(role: str, name: str, known: Mapping[str, object]) -> object:
    """What ``known`` has by that name, or the class that ``path.py:Class`` names.

    Raises ``PolicyError`` that names ``role`` and what would be right.
    """
    if name in known:
        return known[name]
    path, colon, class_name = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _load(role, Path(path), class_name)
    hint = did_you_mean(name, known, f"known are {', '.join(sorted(known))}")
    raise PolicyError(f"{role}: unknown policy {name!r}; {hint} (or name one as path.py:Class)")


def _load(role: str, path: Path, class_name: str) -> object:
    if not path.is_file():
        raise PolicyError(f"{role}: no file {path}")
    module = _module_from(role, path)
    found = getattr(module, class_name, None)
    if not callable(found):
        raise PolicyError(f"{role}: {path} has no class {class_name!r}")
    if isinstance(found, type):
        adopt_old_methods(found)
    return cast(object, found)


def _module_from(role: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"servetwin_policy_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's own code: anything may happen in it
        raise PolicyError(f"{role}: {path} does not load: {error!r}") from error
    return module
