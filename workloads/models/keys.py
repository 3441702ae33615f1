"""The keys of a ``config.json``: found under any of their names, and checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from servetwin.workloads.errors import ServetwinError, ShapeError
from servetwin.workloads.fields import MAX_COUNT

# Beyond all that is in use, and small enough for its square to be a number.
_MAX_NUMBER = 1e18
_MAX_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one object, read from ``where``: a file, and the key where it lies deeper.

    A key that is null counts as missing. Every reader takes the names that a key goes by, the usual
    one first, and raises ``error`` that names the place and the key where a value is impossible.
    """

    values: Mapping[str, Any]
    where: str
    error: type[ServetwinError] = ShapeError

    @classmethod
    def read(cls, path: Path, error: type[ServetwinError]) -> "Keys":
        """Return the object in a file; raise where there is none."""
        try:
            values = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise error(f"{path}: no such file") from None
        except OSError as failure:
            raise error(f"{path}: {failure.strerror}") from None
        except (ValueError, RecursionError) as failure:
            raise error(f"{path}: is no JSON ({failure})") from None
        if not isinstance(values, dict):
            raise error(f"{path}: must be a JSON object")
        return cls(values, str(path), error)

    def with_defaults(self, defaults: Mapping[str, Any]) -> "Keys":
        """Return the keys with values for those that are absent."""
        return replace(self, values={**defaults, **self.values})

    def get(self, name: str, otherwise: Any = None) -> Any:
        """Return a value as it is."""
        value = self.values.get(name)
        return otherwise if value is None else value

    def count(self, *names: str, least: int = 1, most: int = MAX_COUNT) -> int:
        """Return a whole number; raise where the key is missing."""
        value = self.find(*names, least=least, most=most)
        if value is None:
            others = f" (or {', '.join(names[1:])})" if names[1:] else ""
            raise self.failure(
                f"{names[0]}{others} is missing; it must be a whole number from {least} on"
            )
        return value

    def find(self, *names: str, least: int = 1, most: int = MAX_COUNT) -> int | None:
        """Return a whole number, or None where the key is missing."""
        name = self.name_of(*names)
        value = self.values.get(name)
        if isinstance(value, list) and len(value) == self.values.get("num_hidden_layers"):
            value = value[0] if value.count(value[0]) == len(value) else value
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, otherwise: float | None = None) -> float:
        """Return a number above 0; without ``otherwise`` the key must be there."""
        value = self.get(name, otherwise)
        if value is None:
            raise self.failure(f"{name} is missing")
        if type(value) not in (int, float) or not 0 < value <= _MAX_NUMBER:
            raise self.wrong(name, f"a number above 0, at most {_MAX_NUMBER:g}")
        return float(value)

    def name_of(self, *names: str) -> str:
        """Return the first of the names of a key that the config has, or else the usual one."""
        return next((name for name in names if self.values.get(name) is not None), names[0])

    def flag(self, name: str, otherwise: bool = False) -> bool:
        """Return true or false; ``otherwise`` where the key is missing."""
        value = self.get(name, otherwise)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str) -> str:
        """Return a string, empty where the key is missing."""
        value = self.get(name, "")
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def items(self, name: str, kind: type) -> list[Any]:
        """Return a list of values of a kind, empty where the key is missing."""
        value = self.get(name, [])
        if not isinstance(value, list | tuple) or not set(map(type, value)) <= {kind}:
            raise self.wrong(name, f"a list of {kind.__name__}")
        return list(value)

    def part(self, name: str) -> "Keys | None":
        """Return the keys of an object inside the config; None where it is missing."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        return replace(self, values=value, where=f"{self.where}: {name}")

    def require_neutral(self, neutral: Mapping[str, Sequence[object]]) -> None:
        """Raise for a key whose value would change what the model computes."""
        for name, values in neutral.items():
            value = self.values.get(name)
            if value is not None and value not in values:
                only = f"; it supports only {values[0]!r}" if values else ""
                raise self.failure(
                    f"{name} {shortened(json.dumps(value))} is not supported by the engine{only}"
                )

    def wrong(self, name: str, right: str) -> ServetwinError:
        """Return the error that says what a key must be, and what it is."""
        return self.failure(f"{name} must be {right} (got {shortened(repr(self.get(name)))})")

    def failure(self, what: str) -> ServetwinError:
        """Return the error of a key, which ``what`` begins with."""
        return self.error(f"{self.where}: {what}")


def shortened(text: str) -> str:
    """Return the beginning of a long text, a short one as it is."""
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."
