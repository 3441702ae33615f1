"""The facts of a core that runs: what ``GET /servetwin/engine`` and a step log's header say."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servetwin.engine.core.core import CoreClock
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory


def core_facts(
    model: str,
    vocab_size: int,
    policies: PolicyConfig,
    memory: KVMemory,
    runner: Mapping[str, Any],
    clock: CoreClock,
    step_log: Path | None,
    adapters: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the facts about a core; call it in the core's process. ``runner`` describes the
    executor; ``adapters`` are names that requests may give instead of ``model``.
    """
    return {
        "model": model,
        "vocab_size": vocab_size,
        "adapters": list(adapters),
        "max_model_len": policies.max_model_len,
        "kv_tokens": memory.capacity_tokens,
        "policies": policies.as_dict(),
        "runner": dict(runner),
        "step_log": step_log and str(step_log.resolve()),
        "process_id": os.getpid(),
        "clock_zero_s": clock.zero_s,
        "started_at_unix_s": time.time() - clock(),
    }
