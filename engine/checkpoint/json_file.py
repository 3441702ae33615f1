"""A JSON object in a file of a checkpoint, whose errors name the file and the key."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servetwin.workloads.errors import EngineError
from servetwin.workloads.program.package import shipped_json

KNOWN_KEYS: dict[str, Any] = shipped_json("engine/checkpoint/known_keys.json")
"""Keys that change what is computed, with the values that do not (the first one is proposed), and
the keys of the types of rotary positions.
"""
_MOST_SIZE = 2**53
_MOST_NUMBER = 1e18
"""Beyond all that is in use, and small enough for its square to be a number."""
_MOST_CHARACTERS = 60


class JsonObject:
    """Reads keys of an object; ``place`` is the file, and the key where it lies deeper."""

    def __init__(self, place: str, values: Mapping[str, Any]) -> None:
        self.place = place
        self.values = values

    @classmethod
    def read(cls, path: Path) -> "JsonObject":
        """Return the object in a file. Raises ``EngineError`` where there is none."""
        try:
            values = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise EngineError(f"{path}: no such file") from None
        except OSError as error:
            raise EngineError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise EngineError(f"{path}: is no JSON ({error})") from None
        if not isinstance(values, dict):
            raise EngineError(f"{path}: must be a JSON object")
        return cls(str(path), values)

    def with_defaults(self, defaults: Mapping[str, Any]) -> "JsonObject":
        """Return the object with values for keys that are absent."""
        given = {key: value for key, value in self.values.items() if value is not None}
        return JsonObject(self.place, {**defaults, **given})

    def error(self, key: str, what: str) -> EngineError:
        """Return the error of a key."""
        return EngineError(f"{self.place}: {key} {what}")

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value as it is; a null counts as absent."""
        value = self.values.get(key)
        return default if value is None else value

    def size(self, key: str, default: int | None = None, most: int = _MOST_SIZE) -> int:
        """Return a whole number from 1 to ``most``; without ``default`` the key must be there."""
        value = self.get(key, default)
        if value is None:
            raise self.error(key, "is missing")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(key, f"must be a whole number of at least 1 (got {shown(value)})")
        if value > most:
            raise self.error(key, f"must be at most {most} (got {shown(value)})")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number above 0; without ``default`` the key must be there."""
        value = self.get(key, default)
        if value is None:
            raise self.error(key, "is missing")
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise self.error(key, f"must be a number above 0 (got {shown(value)})")
        if value > _MOST_NUMBER:
            raise self.error(key, f"must be at most {_MOST_NUMBER:g} (got {shown(value)})")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false (got {shown(value)})")
        return value

    def part(self, key: str) -> "JsonObject | None":
        """Return the object below a key; None where it is absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, f"must be an object (got {shown(value)})")
        return JsonObject(f"{self.place}: {key}", value)

    def require_neutral(self, neutral: Mapping[str, Sequence[object]]) -> None:
        """Raise ``EngineError`` for a key whose value would change what the model computes."""
        for key, values in neutral.items():
            value = self.get(key)
            if value is not None and value not in values:
                only = f"; it supports only {values[0]!r}" if values else ""
                raise self.error(
                    key, f"{shortened(json.dumps(value))} is not supported by the engine{only}"
                )


def shown(value: object) -> str:
    """Return a value for a message, cut where it is long."""
    return shortened(repr(value))


def shortened(text: str) -> str:
    """Return the beginning of a long text, a short one as it is."""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
