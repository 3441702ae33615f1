"""Devices in words: ``4 H100s``, ``1 A100-80GB``, ``2 x AMD EPYC``."""

from collections.abc import Mapping

from servetwin.sim.catalogue.catalogue import shipped_hardware
from servetwin.sim.experiments.fleet import UNKNOWN


def devices_words(devices: Mapping[str, int]) -> str:
    """Return how many of which devices, joined by ``and``."""
    return " and ".join(device_words(name, count) for name, count in devices.items())


def device_words(name: str, count: int) -> str:
    """Return ``count`` devices of a name."""
    if name != UNKNOWN and name not in shipped_hardware():
        return f"{count:,} x {name}"
    shown = name if name == UNKNOWN else name.upper()
    return f"{count:,} {shown}{'' if count == 1 or shown.endswith('S') else 's'}"
