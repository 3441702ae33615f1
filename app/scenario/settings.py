"""Settings changes as text: ``--set KEY=VALUE``, and the policies that ``replay compare`` names."""

import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import PRESETS, Preset, find_preset
from servetwin.policies.registry import EVICTION_ORDERS, MEMORIES, ROUTERS, SCHEDULERS
from servetwin.workloads.errors import PolicyError, did_you_mean, require_name
from servetwin.workloads.plugins import Registry
from servetwin.workloads.program.key_values import MOST_NUMBER, key_value, key_values

# The known names of a setting, which may also be ``path.py:Class``.
REGISTRIES: Mapping[str, Registry[Any]] = {
    "batching": SCHEDULERS,
    "kv": MEMORIES,
    "eviction": EVICTION_ORDERS,
    "router": ROUTERS,
    "decode_router": ROUTERS,
}

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "none"}
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class NamedPolicies(NamedTuple):
    """The policies that a side of ``replay compare`` names.

    ``policies`` are settings of ``PolicyConfig``; settings of ``ClusterConfig`` come with a preset
    (``preset_cluster``) or as KEY=VALUE (``cluster``). ``presets`` are the names of all.
    """

    policies: dict[str, Any]
    preset_cluster: dict[str, Any]
    cluster: dict[str, Any]
    presets: tuple[str, ...] = ()


NO_POLICIES = NamedPolicies({}, {}, {})


def parse_settings(texts: Iterable[str], where: str, *of: type[Any]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts as settings of the classes ``of``, by default ``PolicyConfig``.

    Raises ``PolicyError`` that names ``where``, the key and what would be right.
    """
    known = {
        key: kind for each in of or (PolicyConfig,) for key, kind in get_type_hints(each).items()
    }
    given = key_values(texts, where)
    return {key: _parsed(key, value, where, known) for key, value in given.items()}


def with_settings(base: PolicyConfig, settings: Mapping[str, Any]) -> PolicyConfig:
    """Return ``base`` with settings laid over it.

    Settings of ``base`` that the new policies do not read go; memory that cannot share turns its
    prefix cache off. Where the settings leave the token
    budget of a step alone, it grows to hold every sequence.
    """
    changes = dict(settings)
    if changes.get("kv", base.kv) == "contiguous":
        changes.setdefault("prefix_cache", False)
    if "token_budget" not in changes:
        rows = 1 + changes.get("draft_rows", base.draft_rows)
        needed = rows * changes.get("max_seqs", base.max_seqs)
        changes["token_budget"] = max(base.token_budget, needed)
    return base.changed(**changes)


def parse_policies(text: str, where: str = "replay compare") -> NamedPolicies:
    """Parse policies named in parts that ``+`` joins; later parts win.

    A part is a preset (``vllm-v1``), a piece of a label (``static+contiguous-exact``,
    ``chunked+paged+prefix``, ``my_policy.py:MyScheduler+paged``) or a setting of the policies or
    the cluster (``queue_order=sjf``, ``replicas=2``). Raises ``PolicyError`` that names ``where``
    and the nearest known name.
    """
    from servetwin.sim.experiments.scenario import ClusterConfig

    cluster_settings = get_type_hints(ClusterConfig)
    settings = {**get_type_hints(PolicyConfig), **cluster_settings}
    named = NamedPolicies({}, {}, {})
    for number, part in enumerate(text.split("+")):
        if "=" in part:
            key, value = key_value(part, where)
            of = named.cluster if key in cluster_settings else named.policies
            of[key] = _parsed(key, value, where, settings)
        elif piece := _label_piece(part, number):
            named.policies.update(piece)
        else:
            preset = _preset(part, where)
            named.policies.update(preset.policies)
            named.preset_cluster.update(preset.cluster)
            named = named._replace(presets=(*named.presets, part))
    return named


def policies_named(text: str, base: PolicyConfig, where: str) -> PolicyConfig:
    """``base`` under the policies of one server that ``text`` names (``parse_policies``).

    Raises ``PolicyError`` where it names settings of a cluster.
    """
    named = parse_policies(text, where)
    if around := {**named.preset_cluster, **named.cluster}:
        raise PolicyError(f"{where}: {text!r}: one server has no {', '.join(around)}")
    return with_settings(base, named.policies)


def _label_piece(part: str, number: int) -> dict[str, Any]:
    """Return the settings that a piece of ``PolicyConfig.name`` stands for, if any."""
    kv, _, reservation = part.partition("-")
    if part in SCHEDULERS:
        return {"batching": part}
    if part in MEMORIES:
        return {"kv": part}
    if part == "prefix":
        return {"prefix_cache": True}
    if ".py:" in part:
        return {"kv" if number else "batching": part}
    return {"kv": kv, "reservation": reservation} if kv in MEMORIES else {}


def _preset(name: str, where: str) -> Preset:
    """Return a preset; raises ``PolicyError`` with the nearest name of a preset or a policy."""
    if name in PRESETS:
        return find_preset(name)
    known = [*PRESETS, *SCHEDULERS, *MEMORIES, "prefix"]
    hint = did_you_mean(name, known, "name a preset, a policy or KEY=VALUE")
    raise PolicyError(f"{where}: unknown policies {name!r}; {hint}")


def _parsed(key: str, value: str, where: str, known: Mapping[str, Any]) -> Any:
    """Return the value of a key of ``known``, of the type that ``known`` has for it."""
    require_name(key, known, f"{where}: unknown setting", PolicyError)
    kinds = _kinds(known[key])
    try:
        return _convert(value, kinds)
    except ValueError:
        wanted = " or ".join(_WORDS[kind] for kind in kinds)
        raise PolicyError(f"{where}: {key}: {value!r} is not {wanted}") from None


def _kinds(hint: Any) -> tuple[type, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,) if isinstance(hint, type) else (str,)


def _convert(value: str, kinds: tuple[type, ...]) -> Any:
    if types.NoneType in kinds and value.lower() == "none":
        return None
    if kinds[0] in (int, float) and abs(kinds[0](value)) > MOST_NUMBER:
        raise ValueError(value)
    if kinds[0] is not bool:
        return kinds[0](value)
    if value.lower() not in _TRUTH:
        raise ValueError(value)
    return _TRUTH[value.lower()]
