"""Which models, devices and backends have kernel tables, by the package's own list."""

import csv
from functools import cache
from importlib import resources

from servetwin.sim.catalogue.hub_names import plain_name, same_shape
from servetwin.sim.step_times.tables.kernel_library import SYSTEMS, installed_package

Support = dict[str, dict[str, tuple[str, ...]]]
"""Backends by device, by the plain name of a model."""


def backends_with_tables(model: str, device: str) -> tuple[str, ...]:
    """Return the backends whose kernels were measured for a model of this shape on a device.

    Empty where no package with tables is installed.
    """
    support = kernel_support()
    names = (plain_name(model), *map(plain_name, same_shape(model)))
    return next((support[n][device] for n in names if device in support.get(n, {})), ())


@cache
def kernel_support() -> Support:
    """Return the backends by device, by the plain name of each model of the package."""
    package = installed_package()
    if package is None:
        return {}
    support: Support = {}
    folder = resources.files(package).joinpath("systems", "support_matrix")
    for device, system in SYSTEMS.items():
        table = folder.joinpath(f"{system}.csv")
        if not table.is_file():
            continue
        for row in csv.DictReader(table.read_text("utf-8").splitlines()):
            if row["Mode"] == "agg" and row["Status"] == "PASS":
                backends = support.setdefault(plain_name(row["HuggingFaceID"]), {})
                before = backends.get(device, ())
                backends[device] = tuple(dict.fromkeys((*before, row["Backend"])))
    return support
