"""What a device costs per hour: an input of the reader, by device or one for all."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from servetwin.workloads.errors import PolicyError, require_name
from servetwin.workloads.program.key_values import key_values, number_in
from servetwin.workloads.program.package import shipped_json

FORM = "2.5, or DEVICE=2.5,DEVICE=0.9"
# List prices ``per_hour`` by device, what they are (``about``), and the ``usual`` devices.
LISTED: dict[str, Any] = shipped_json("sim/catalogue/prices.json")


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of an hour by device, in any currency; ``others`` is that of all others."""

    by_device: Mapping[str, float] = field(default_factory=dict)
    others: float | None = None

    def per_hour(self, devices: Mapping[str, float]) -> float | None:
        """Return the price of an hour of all devices; None where one has no price."""
        each = {name: self.by_device.get(name, self.others) for name in devices}
        known = {name: price for name, price in each.items() if price is not None}
        if len(known) < len(each):
            return None
        return sum(count * known[name] for name, count in devices.items())

    def over_listed(self) -> "Prices":
        """Return these prices over the list; one for all others leaves nothing of it."""
        from servetwin.sim.catalogue.catalogue import find_hardware

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
    parts = text.replace(",", " ").split()
    alone = [part for part in parts if "=" not in part]
    if len(alone) > 1:
        raise PolicyError(f"{where}: {alone[1]!r}: one price for all is given already")
    given = key_values((part for part in parts if "=" in part), where, form="DEVICE=PRICE")
    by_device = {name: _price(number, f"{where}: {name}") for name, number in given.items()}
    return Prices(by_device, *(_price(number, where) for number in alone))


def _price(number: str, where: str) -> float:
    price = number_in(number)
    if not price >= 0:
        raise PolicyError(f"{where}: {number!r} is no price of 0 or more; write {FORM}")
    return price
