"""Settings given as text: ``--set KEY=VALUE``, and the policies named by ``--compare``."""

import difflib
import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from policies.config import PolicyConfig


def parse_settings(texts: Iterable[str], where: str) -> dict[str, Any]:
    """``KEY=VALUE`` texts as settings of ``PolicyConfig``.

    Raises ``PolicyError`` that names ``where``, the key and what would be right.
    """
    return dict(_parse_setting(text, where) for text in texts)


def with_settings(base: "PolicyConfig", settings: Mapping[str, Any]) -> "PolicyConfig":
    """``base`` with settings laid over it; contiguous memory turns an inherited prefix cache off.

    Where the settings do not choose a step's token budget, it grows to hold every sequence.
    """
    given = dict(settings)
    if given.get("kv", base.kv) == "contiguous":
        given.setdefault("prefix_cache", False)
    if "token_budget" not in given:
        given["token_budget"] = max(base.token_budget, given.get("max_seqs", base.max_seqs))
    return replace(base, **given)


def parse_policies(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ``--compare`` names: (settings of ``PolicyConfig``, settings of ``ClusterConfig``).

    A preset (``vllm-v1``), a label (``static+contiguous``, ``chunked+paged+prefix``), settings
    (``queue_order=sjf``), or several of these joined by ``+``; later ones win.
    """
    from policies.presets import find_preset
    from policies.registry import MEMORIES, SCHEDULERS

    policies: dict[str, Any] = {}
    cluster: dict[str, Any] = {}
    for part in text.split("+"):
        if "=" in part:
            policies.update(parse_settings([part], "--compare"))
        elif part in SCHEDULERS:
            policies["batching"] = part
        elif part in MEMORIES:
            policies["kv"] = part
        elif part == "prefix":
            policies["prefix_cache"] = True
        else:
            preset = find_preset_or_policy(part, [*SCHEDULERS, *MEMORIES, "prefix"], find_preset)
            policies.update(preset.policies)
            cluster.update(preset.cluster)
    return policies, cluster


def find_preset_or_policy(name: str, policies: list[str], find_preset: Any) -> Any:
    """A preset; else an error with the nearest name of either kind."""
    from policies.presets import PRESETS
    from workloads.errors import PolicyError

    if name in PRESETS:
        return find_preset(name)
    near = difflib.get_close_matches(name, [*PRESETS, *policies], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "name a preset, a policy or KEY=VALUE"
    raise PolicyError(f"--compare: unknown policies {name!r}; {hint}")


def _parse_setting(text: str, where: str) -> tuple[str, Any]:
    from policies.config import PolicyConfig
    from workloads.errors import PolicyError

    key, equals, value = text.partition("=")
    known = [f.name for f in fields(PolicyConfig)]
    if not equals:
        raise PolicyError(f"{where}: {text!r} is not KEY=VALUE")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        raise PolicyError(f"{where}: unknown setting {key!r}; {hint}")
    kinds = _kinds(get_type_hints(PolicyConfig)[key])
    try:
        return key, _convert(value, kinds)
    except ValueError:
        wanted = " or ".join("none" if k is type(None) else k.__name__ for k in kinds)
        raise PolicyError(f"{where}: {key}: {value!r} is not {wanted}") from None


def _kinds(hint: Any) -> tuple[type, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,) if isinstance(hint, type) else (str,)


def _convert(value: str, kinds: tuple[type, ...]) -> Any:
    if type(None) in kinds and value.lower() == "none":
        return None
    kind = kinds[0]
    if kind is bool:
        truth = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        if value.lower() not in truth:
            raise ValueError(value)
        return truth[value.lower()]
    return kind(value)
