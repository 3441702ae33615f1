"""Open models by their names on the Hugging Face hub, with their owner or without.

``hub_models.json`` has the shapes, names that share one, and the formats of the published weights.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.catalogue.quantisation import Quantisation
from servetwin.workloads.program.package import shipped_json

# Returns the model that is shipped as a file of a name, if there is one.
Shipped = Callable[[str], ModelShape | None]


def find_name(name: str, shipped: Shipped) -> ModelShape | None:
    """Return the model of a name; None where it is not known.

    An exact name wins; else endings are taken off one by one: those of formats are read, others,
    such as ``-Instruct``, change nothing here.
    """
    owner, _, rest = _without_beginning(name).rpartition("/")
    form = None
    while (model := _exact(rest, shipped)) is None:
        ending = _ending(rest)
        if ending is None:
            return None
        rest = rest.removesuffix(ending)[:-1]
        form = form or _TABLE["formats"].get(ending)
    if form is None:
        return model
    families: dict[str, str] = _TABLE["fp8_blocks"]
    if form == "fp8" and (
        owner in families or (not owner and rest.startswith(tuple(families.values())))
    ):
        form = "fp8-block"
    origin = f"{model.source}; {form} weights by the ending of the name"
    formats = Quantisation.model_validate({"gemm": form, "experts": form})
    return model.model_copy(update={"quantisation": formats, "source": origin})


def plain_name(name: str) -> str:
    """Return the name that the catalogue would have for a name on the hub."""
    rest = _without_beginning(name).rpartition("/")[2]
    while (ending := _ending(rest)) is not None:
        rest = rest.removesuffix(ending)[:-1]
    return rest


def hub_models() -> list[str]:
    """Return the names on the hub that are known."""
    return list(_TABLE["names"])


def same_shape(name: str) -> list[str]:
    """Return the names on the hub of models whose shape is that of ``name``."""
    shape = _by_plain_name().get(plain_name(name), {"shape": name})["shape"]
    return [other for other, one in _TABLE["names"].items() if one["shape"] == shape]


# Among others ``fp8_blocks``: the owners whose fp8 weights have a scale per block, and how the
# names of their models begin.
_TABLE: dict[str, Any] = shipped_json("sim/catalogue/hub_models.json")


def _without_beginning(name: str) -> str:
    owner, slash, plain = name.lower().replace("_", "-").rpartition("/")
    for beginning in _TABLE["beginnings"]:
        plain = plain.removeprefix(beginning)
    return owner + slash + plain


def _ending(name: str) -> str | None:
    endings = (*_TABLE["formats"], *_TABLE["endings"])
    return next((ending for ending in endings if name.endswith(f"-{ending}")), None)


@cache
def _by_plain_name() -> dict[str, dict[str, Any]]:
    names = {shape: {"shape": shape} for shape in _TABLE["shapes"]}
    for hub, entry in _TABLE["names"].items():
        names[_without_beginning(hub).rpartition("/")[2]] = entry
    for hub, entry in _TABLE["names"].items():
        names.setdefault(plain_name(hub), entry)
    return names


def _exact(name: str, shipped: Shipped) -> ModelShape | None:
    """Return the model of this very name."""
    if (model := shipped(name)) is not None:
        return model
    entry = _by_plain_name().get(name)
    if entry is None:
        return None
    model = shipped(shape := entry["shape"])
    if model is None:
        text = json.dumps({"name": shape, **_TABLE["shapes"][shape]})
        model = ModelShape.model_validate_json(text, strict=True)
    formats = Quantisation(**entry.get("quantisation", {}))
    context = entry.get("max_model_len", model.max_model_len)
    changes = {"name": plain_name(name), "max_model_len": context, "quantisation": formats}
    return model.model_copy(update=changes)
