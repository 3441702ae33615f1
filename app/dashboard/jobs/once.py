"""Values that sessions share: each is computed once, by the first session that asks for it."""

from collections.abc import Callable, Hashable
from threading import Condition
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_LOOK_EVERY_S = 0.1


class Once(Generic[Key, Value]):
    """The newest values by key, which weigh ``most`` at most; without ``weight`` each weighs 1."""

    def __init__(self, most: int, weight: Callable[[Value], int] = lambda _: 1) -> None:
        self._most, self._weight = most, weight
        self._kept: dict[Key, Value] = {}
        self._under_way: set[Key] = set()
        self._changed = Condition()

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
            self._end(key)
            raise
        self._end(key, {key: value})
        return value

    def _end(self, key: Key, found: dict[Key, Value] | None = None) -> None:
        with self._changed:
            self._under_way.discard(key)
            self._kept.update(found or {})
            while len(self._kept) > 1 and sum(map(self._weight, self._kept.values())) > self._most:
                del self._kept[next(iter(self._kept))]
            self._changed.notify_all()
