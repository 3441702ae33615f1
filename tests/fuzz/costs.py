"""What one case may cost: processor time and memory, far above what any right answer takes."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

MIB = 1 << 20
_STATM = Path("/proc/self/statm")
_DATA = 5
"""Place of the pages of data in ``/proc/self/statm``."""


class TooCostly(BaseException):
    """A case took more processor time than it may; no ``except Exception`` hides it."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The most that a case may cost beyond what the process has already."""

    cpu_s: float = 5.0
    memory_bytes: int = 1024 * MIB

    @contextmanager
    def bound(self) -> Iterator[None]:
        """Raise ``TooCostly`` for processor time beyond the bound, ``MemoryError`` for memory."""
        with self._bounded_cpu(), self._bounded_memory():
            yield

    @contextmanager
    def _bounded_cpu(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            raise TooCostly(f"more than {self.cpu_s:g} s of processor time")

        before = signal.signal(signal.SIGPROF, stop)
        signal.setitimer(signal.ITIMER_PROF, self.cpu_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    @contextmanager
    def _bounded_memory(self) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_DATA)
        held_bytes = int(_STATM.read_text().split()[_DATA]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (held_bytes + self.memory_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, before)
