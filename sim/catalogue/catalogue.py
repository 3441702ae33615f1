"""Models and devices by name: shipped ones, your own as JSON, any Hugging Face config."""

import json
import os
from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, TypeVar

from pydantic import ValidationError

from servetwin.sim.catalogue.entry import first_problem
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.hf_config import model_from_hf_config
from servetwin.sim.catalogue.model import ModelShape
from servetwin.workloads.errors import ShapeError, did_you_mean
from servetwin.workloads.files import document

Entry = TypeVar("Entry", ModelShape, Hardware)

_MAX_DIGITS = 18
_HF_KEYS = {"model_type", "architectures", "text_config"}


def find_model(name: str) -> ModelShape:
    """Return a shipped model by name, or one by path: our JSON or a Hugging Face ``config.json``.

    A name on the Hugging Face hub, ``Qwen/Qwen3-32B``, is that of the shipped ``qwen3-32b``.

    Raises ``ShapeError`` naming the file and field that are wrong, or the nearest shipped name.
    """
    text = _text(_without_owner(name), "models", "model")
    entry = _object(text, name)
    if entry.keys() & _HF_KEYS:
        return model_from_hf_config(entry, _model_name(Path(name)), name)
    return _checked(ModelShape, text, name)


def find_hardware(name: str) -> Hardware:
    """Return a shipped device by name, or your own by path (``*.json``).

    Raises ``ShapeError`` naming the file and field that are wrong, or the nearest shipped name.
    """
    text = _text(name, "devices", "device")
    _object(text, name)
    return _checked(Hardware, text, name)


def shipped_models() -> list[str]:
    """Return the names of the models that come with the package."""
    return _shipped("models")


def shipped_hardware() -> list[str]:
    """Return the names of the devices that come with the package."""
    return _shipped("devices")


def _folder(folder: str) -> Traversable:
    return resources.files("servetwin.sim").joinpath("catalogue").joinpath(folder)


def _shipped(folder: str) -> list[str]:
    names = (entry.name for entry in _folder(folder).iterdir())
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def _text(name: str, folder: str, what: str) -> str:
    shipped = _shipped(folder)
    if name in shipped:
        return _folder(folder).joinpath(f"{name}.json").read_text("utf-8")
    if not (name.endswith(".json") or os.path.exists(name)):
        raise _unknown(name, shipped, what)
    try:
        return document(Path(name)).decode("utf-8-sig")
    except IsADirectoryError:
        raise ShapeError(f"{name}: a directory; give the path of a .json file") from None
    except UnicodeDecodeError:
        raise ShapeError(f"{name}: not text; a {what} is a JSON file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ShapeError(f"{name}: the {what} cannot be read ({reason})") from None


def plain_name(name: str) -> str:
    """Return the name that the catalogue would have for a name on the hub."""
    return name.rpartition("/")[2].lower().removeprefix("meta-").removesuffix("-instruct")


def _without_owner(name: str) -> str:
    """Return the shipped name of a name on the hub; any other name as it is."""
    is_known = "/" in name and plain_name(name) in _shipped("models")
    return plain_name(name) if is_known and not os.path.exists(name) else name


def _unknown(name: str, shipped: Iterable[str], what: str) -> ShapeError:
    hint = did_you_mean(name.lower(), shipped)
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
