"""Results that sessions share: each is computed once, by the first session that asks for it."""

from collections.abc import Callable, Hashable, Mapping
from threading import Condition
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_LOOK_EVERY_S = 0.1


class SharedResults(Generic[Key, Value]):
    """The newest values by key, which weigh ``most`` at most; without ``weight`` each weighs 1.

    The methods may be called from any thread.
    """

    def __init__(self, most: int, weight: Callable[[Value], int] = lambda _: 1) -> None:
        self._most, self._weight = most, weight
        self._kept: dict[Key, Value] = {}
        self._under_way: set[Key] = set()
        self._changed = Condition()

    def of(self, keys: Mapping[int, Key]) -> dict[int, Value]:
        """Return the values that are there, by place."""
        with self._changed:
            return {place: self._kept[key] for place, key in keys.items() if key in self._kept}

    def keep(self, key: Key, value: Value) -> None:
        """Keep a value, and drop the oldest beyond the most."""
        with self._changed:
            self._under_way.discard(key)
            self._kept[key] = value
            while len(self._kept) > 1 and sum(map(self._weight, self._kept.values())) > self._most:
                del self._kept[next(iter(self._kept))]
            self._changed.notify_all()

    def get(self, key: Key, make: Callable[[], Value], still_wanted: Callable[[], None]) -> Value:
        """Return the value, made by ``make`` unless it is there or another session makes it.

        ``still_wanted`` is called while another makes it. Where ``make`` raises, the next session
        that waits makes it.
        """
        while True:
            with self._changed:
                is_free = self._changed.wait_for(lambda: key not in self._under_way, _LOOK_EVERY_S)
                if is_free and key in self._kept:
                    return self._kept[key]
                if is_free:
                    self._under_way.add(key)
                    break
            still_wanted()
        try:
            value = make()
        except BaseException:
            with self._changed:
                self._under_way.discard(key)
                self._changed.notify_all()
            raise
        self.keep(key, value)
        return value


# Of all jobs, by key: rows of figures, or searches of some twenty counts.
RESULTS: SharedResults[Hashable, Any] = SharedResults(4096)
