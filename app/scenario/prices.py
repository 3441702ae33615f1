"""What a device costs per hour: an input of the reader, by device or one for all."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from servetwin.sim.catalogue.catalogue import find_hardware
from servetwin.workloads.errors import PolicyError, require_name
from servetwin.workloads.program.key_values import number_in
from servetwin.workloads.program.package import shipped_json

FORM = "2.5, or DEVICE=2.5,DEVICE=0.9"
LISTED: dict[str, Any] = shipped_json("sim/catalogue/prices.json")
"""List prices ``per_hour`` by device, what they are (``about``), and the ``usual`` devices."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of an hour by device, in any currency; ``others`` is that of all others."""

    by_device: Mapping[str, float] = field(default_factory=dict)
    others: float | None = None

    def per_hour(self, devices: Mapping[str, int]) -> float | None:
        """Return the price of an hour of all devices; None where one has no price."""
        each = {name: self.by_device.get(name, self.others) for name in devices}
        known = {name: price for name, price in each.items() if price is not None}
        if len(known) < len(each):
            return None
        return sum(count * known[name] for name, count in devices.items())

    def over_listed(self) -> "Prices":
        """Return these prices over the list; one for all others leaves nothing of it."""
        mine = {find_hardware(name).name: price for name, price in self.by_device.items()}
        listed = LISTED["per_hour"] if self.others is None else {}
        return replace(self, by_device={**listed, **mine})

    def require_known(self, devices: Iterable[str], where: str) -> None:
        """Raise ``PolicyError`` for the price of a device that no candidate has."""
        known = sorted(set(devices))
        for name in self.by_device:
            require_name(name, known, f"{where}: no candidate runs on", PolicyError)


def parse_prices(text: str, where: str) -> Prices:
    """Read prices, separated by commas or spaces; raises ``PolicyError`` naming the part."""
    by_device: dict[str, float] = {}
    others: float | None = None
    for part in text.replace(",", " ").split():
        name, equals, number = part.rpartition("=")
        price = _price(part, number, where)
        if equals and (not name or name in by_device):
            raise PolicyError(f"{where}: {part!r}: wants each device once, such as {FORM}")
        if not equals and others is not None:
            raise PolicyError(f"{where}: {part!r}: one price for all is given already")
        if equals:
            by_device[name] = price
        else:
            others = price
    return Prices(by_device, others)


def _price(part: str, number: str, where: str) -> float:
    price = number_in(number)
    if not price >= 0:
        raise PolicyError(f"{where}: {part!r} is no price of 0 or more; write {FORM}")
    return price
