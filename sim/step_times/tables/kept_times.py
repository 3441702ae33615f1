"""Kernel times in the user's cache: what one command looks up, the next finds there."""

import atexit
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from servetwin.sim.step_times.tables.kernel_table import KernelTable
from servetwin.workloads.errors import TraceError
from servetwin.workloads.files import cache_folder, write_whole

_SOURCES = ("kernel_library.py", "kernel_names.json", "plausibility.py")
"""Files whose change makes a kept entry worthless."""
_HEAD = ("description", "doubts", "left_out_s")


class KeptTimes:
    """Kernel times (``KernelTimes``); those that are not known come from the table."""

    def __init__(self, known: dict[str, Any], opened: Callable[[], KernelTable]) -> None:
        self._known, self._opened = known, opened

    def decode_step_latency(self, *of: int) -> float:
        """Return the time of a step of decodes."""
        return float(self._time("decode_step_latency", of))

    def mixed_step_breakdown(self, *of: int) -> tuple[float, float, float, float]:
        """Return the times of a mixed step: all, all but attention, of chunks, of decodes."""
        whole, dense, chunks, decodes = self._time("mixed_step_breakdown", of)
        return whole, dense, chunks, decodes

    def _time(self, name: str, of: tuple[int, ...]) -> Any:
        key = repr(of)  # five numbers for a mixed step, three for one of decodes
        if key not in self._known:
            self._known[key] = getattr(self._opened().times, name)(*of)
        return self._known[key]


def kept_table(opened: Callable[[], KernelTable], *of: object) -> KernelTable:
    """Return the table that ``opened`` returns; it is opened only for times that are not kept.

    ``of`` is all that the times depend on. Those that are new are kept when Python ends.
    """
    source = [Path(__file__).with_name(name).read_bytes() for name in _SOURCES]
    name = hashlib.sha256(repr((of, source)).encode()).hexdigest()[:16]
    path, opened = cache_folder() / f"kernels-{name}.json", cache(opened)
    try:
        entry = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        entry = {"known": {}} | {part: getattr(opened(), part) for part in _HEAD}
    atexit.register(_keep, path, entry, len(entry["known"]))
    times, doubts = KeptTimes(entry["known"], opened), tuple(entry["doubts"])
    return KernelTable(times, entry["description"], 1.0, doubts, entry["left_out_s"])


def _keep(path: Path, entry: dict[str, Any], before: int) -> None:
    if len(entry["known"]) > before:
        with suppress(OSError, TraceError):  # without it a command takes longer, no more
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(entry))
