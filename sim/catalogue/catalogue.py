"""Models and devices by name: shipped ones, your own as JSON, any Hugging Face config."""

import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, TypeVar

from pydantic import ValidationError

from servetwin.sim.catalogue.entry import first_problem
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.hf_config import model_from_hf_config
from servetwin.sim.catalogue.hub_names import find_name, hub_models, plain_name
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.catalogue.shipped import shipped, shipped_text
from servetwin.workloads.errors import ShapeError, did_you_mean
from servetwin.workloads.files import document

__all__ = ["find_hardware", "find_model", "plain_name"]

Entry = TypeVar("Entry", ModelShape, Hardware)

_MAX_DIGITS = 18
_HF_KEYS = {"model_type", "architectures", "text_config"}


def find_model(name: str) -> ModelShape:
    """Return a shipped model by name, or one by path: our JSON or a Hugging Face ``config.json``.

    A name on the Hugging Face hub is known with its owner or without, in any case; an ending such
    as ``-FP8`` or ``-AWQ`` says the number format of the weights.

    Raises ``ShapeError`` naming the file and field that are wrong, or the nearest known name.
    """
    if not _is_file(name) and (known := find_name(name, _model_named)) is not None:
        return known
    text = _text(name, "models", "model", (*shipped("models"), *hub_models()))
    entry = _object(text, name)
    if entry.keys() & _HF_KEYS:
        return model_from_hf_config(_with_formats(entry, Path(name)), _model_name(Path(name)), name)
    return _checked(ModelShape, text, name)


def _model_named(name: str) -> ModelShape | None:
    """Return an entry that is shipped as a file."""
    if name not in shipped("models"):
        return None
    return _checked(ModelShape, shipped_text("models", name), name)


def _is_file(name: str) -> bool:
    return name.endswith(".json") or (name not in shipped("models") and os.path.isfile(name))


def _with_formats(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a config with the formats that ``hf_quant_config.json`` beside it names."""
    beside = path.with_name("hf_quant_config.json")
    if "quantization_config" in config or not beside.is_file():
        return config
    formats = _object(document(beside).decode("utf-8-sig"), str(beside))
    return {**config, "quantization": formats.get("quantization")}


def find_hardware(name: str) -> Hardware:
    """Return a shipped device by any of its names, or your own by path (``*.json``).

    Case, spaces and the vendor do not matter: ``NVIDIA H100 80GB HBM3`` is ``h100``.

    Raises ``ShapeError`` naming the file and field that are wrong, or the nearest shipped name.
    """
    name = _device_names().get(_squeezed(name), name)
    text = _text(name, "devices", "device", shipped("devices"))
    _object(text, name)
    return _checked(Hardware, text, name)


# Words of a device's name that say no more than who made it.
_MAKERS = ("nvidia", "geforce", "amd", "instinct", "intel", "google", "cloud", "huawei", "ascend")


@cache
def _device_names() -> dict[str, str]:
    """Return the shipped name of each device by every name that it goes by, squeezed."""
    names: dict[str, str] = {}
    for known in shipped("devices"):
        entry = json.loads(shipped_text("devices", known))
        names |= {_squeezed(name): known for name in (known, *entry.get("aliases", ()))}
    return names


def _squeezed(name: str) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in name.lower()).split()
    return "".join(word for word in words if word not in _MAKERS)


def _text(name: str, folder: str, what: str, known: Iterable[str]) -> str:
    if name in shipped(folder):
        return shipped_text(folder, name)
    if not (name.endswith(".json") or os.path.exists(name)):
        raise _unknown(name, known, what)
    try:
        return document(Path(name)).decode("utf-8-sig")
    except IsADirectoryError:
        raise ShapeError(f"{name}: a directory; give the path of a .json file") from None
    except UnicodeDecodeError:
        raise ShapeError(f"{name}: not text; a {what} is a JSON file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ShapeError(f"{name}: the {what} cannot be read ({reason})") from None


def _unknown(name: str, shipped: Iterable[str], what: str) -> ShapeError:
    hint = did_you_mean(name.lower(), shipped, f"'servetwin list {what}s' has them")
    return ShapeError(f"no {what} {name!r}; {hint} (or give the path of a .json file)")


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise ShapeError(f"{name}: line {error.lineno}: not JSON ({error.msg})") from None
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"{name}: not JSON that can be read ({error})") from None
    if not isinstance(value, dict):
        raise ShapeError(f"{name}: a JSON object {{...}} is needed, not {shortened(value)}")
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _checked(kind: type[Entry], text: str, name: str) -> Entry:
    try:
        return kind.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise ShapeError(f"{name}: {first_problem(error)}") from None


def _model_name(path: Path) -> str:
    """Return the name of the file of a config, or of its folder where the file is config.json."""
    return path.resolve().parent.name if path.stem == "config" else path.stem
