"""The keys of a Hugging Face ``config.json``: found under any of their names, and checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any

from servetwin.workloads.errors import ShapeError
from servetwin.workloads.fields import MAX_COUNT
from servetwin.workloads.program.package import shipped_json


@dataclass(frozen=True, slots=True)
class Family:
    """The facts that the class of a model decides where its config is silent.

    ``matrices`` of the FFN: 3 gated, 2 plain. ``tied``: the head is the embedding. In a model with
    a window, each ``full_every``-th layer sees all tokens; ``windowed``: the window is used unless
    the config says otherwise. ``more_positions``: learned position embeddings beyond the context;
    None: none are learned. ``shared_experts`` run beside the chosen ones.
    """

    matrices: int = 3
    tied: bool = False
    full_every: int | None = None
    windowed: bool = True
    more_positions: int | None = None
    shared_experts: int = 0


PLAIN = Family(matrices=2)

_FACTS = shipped_json("sim/catalogue/hf_families.json")
FAMILIES: dict[str, Family] = {name: Family(**facts) for name, facts in _FACTS["families"].items()}
"""The families by ``model_type``, without the ending ``_text`` of a multimodal model's part."""

NAMES: dict[str, list[str]] = _FACTS["keys"]
"""The names of a key in the configs of different classes, the usual one first."""

NESTED_DEFAULTS: dict[str, dict[str, int]] = _FACTS["nested_defaults"]
"""The keys that a text part may leave out, because they are the defaults of its class."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one config, read from ``where``; a key that is null counts as missing.

    Every reader takes the names that a key goes by, the usual one first, and raises ``ShapeError``
    naming the key where its value is impossible.
    """

    values: Mapping[str, Any]
    where: str

    def count(self, *names: str, least: int = 1, most: int = MAX_COUNT) -> int:
        """Return a whole number; raise where the key is missing."""
        value = self.find(*names, least=least, most=most)
        if value is None:
            others = f" (or {', '.join(names[1:])})" if names[1:] else ""
            raise ShapeError(
                f"{self.where}: key {names[0]!r}{others} is missing; it must be a whole number "
                f"from {least} on"
            )
        return value

    def find(self, *names: str, least: int = 1, most: int = MAX_COUNT) -> int | None:
        """Return a whole number, or None where the key is missing."""
        name = self.name_of(*names)
        value = self.values.get(name)
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]  # the same in every layer
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, f"a whole number from {least} to {most}")
        return value

    def name_of(self, *names: str) -> str:
        """Return the first of the names of a key that the config has, or else the usual one."""
        return next((name for name in names if self.values.get(name) is not None), names[0])

    def flag(self, name: str, otherwise: bool) -> bool:
        """Return true or false; ``otherwise`` where the key is missing."""
        value = self.values.get(name)
        if value is None:
            return otherwise
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str) -> str:
        """Return a string, empty where the key is missing."""
        value = self.values.get(name)
        if not isinstance(value, str | None):
            raise self.wrong(name, "a string")
        return value or ""

    def items(self, name: str, kind: type) -> list[Any]:
        """Return a list of values of a kind, empty where the key is missing."""
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple) or not set(map(type, value)) <= {kind}:
            raise self.wrong(name, f"a list of {kind.__name__}")
        return list(value)

    def nested(self, name: str) -> "Keys | None":
        """Return the keys of an object inside the config; None where it is missing."""
        value = self.values.get(name)
        return Keys(value, f"{self.where}: {name}") if isinstance(value, Mapping) else None

    def wrong(self, name: str, right: str) -> ShapeError:
        """Return the error that says what a key is, and what it must be."""
        value = shortened(self.values.get(name))
        return ShapeError(
            f"{self.where}: key {name!r}: {value} is not possible; it must be {right}"
        )
