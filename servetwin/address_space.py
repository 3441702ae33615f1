"""Refuse an import for which little address space (``ulimit -v``) has no room.

Where OpenBLAS finds no memory as it is loaded, it tries again for ever, and no signal ends it.
"""

import mmap
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from math import inf

try:
    import resource
except ModuleNotFoundError:  # not on Windows
    resource = None  # type: ignore[assignment]

ROOM_MB: Mapping[str, int] = {"numpy": 120, "pandas": 230, "scipy": 80}
"""What a package takes as it is imported, its OpenBLAS with it."""
_M_ARENA_MAX = -8


class RoomForImports:
    """Finds no module; raises ``MemoryError`` before the first one of a package without room."""

    def __init__(self) -> None:
        self._left = dict(ROOM_MB)

    def find_spec(self, name: str, *_: object) -> None:
        """Called by the import of a module. Raises ``MemoryError``."""
        package, dot, _rest = name.partition(".")
        if (dot or package != "scipy") and (room_mb := self._left.pop(package, None)):
            try:
                mmap.mmap(-1, room_mb << 20).close()
            except OSError:
                raise MemoryError(f"no room for {package}") from None


def most_addresses() -> float:
    """Return the bytes of address space that this process may have; inf without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0] if resource else -1
    return inf if limit < 0 else limit


def guard_imports() -> None:
    """Watch imports where the address space has a limit: threads share a heap then.

    Without a limit, glibc reserves 64 MB for each. OpenBLAS starts no threads: no product here is
    large enough for them, and they spin beside the processes of a sweep.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if most_addresses() < inf:
        import ctypes

        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
        sys.meta_path.insert(0, RoomForImports())
