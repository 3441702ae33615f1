"""Results of jobs that all users share: what one session has computed, another need not."""

from collections.abc import Mapping
from threading import Lock
from typing import Any

_MOST_KEPT = 4096
"""A result is a row of figures, or a search of some twenty counts."""


class KeptResults:
    """The newest results by key; the methods may be called from any thread."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[str, Any] = {}
        self._lock = Lock()

    def of(self, keys: Mapping[int, str]) -> dict[int, Any]:
        """Return the results that are there, by place."""
        with self._lock:
            return {place: self._kept[key] for place, key in keys.items() if key in self._kept}

    def keep(self, key: str, result: Any) -> None:
        """Keep a result, and drop the oldest beyond the most."""
        with self._lock:
            self._kept[key] = result
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]


RESULTS = KeptResults()
"""Of all jobs of this dashboard."""
