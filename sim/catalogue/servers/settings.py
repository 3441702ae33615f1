"""What a command line, a file or a log says of a server.

The flags of a server: which setting each gives, and which do not change a simulation.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from math import inf
from typing import Any, Literal, Self

from servetwin.policies.presets import find_preset
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.versions import of_version
from servetwin.workloads.errors import PolicyError, did_you_mean
from servetwin.workloads.program.key_values import number_in
from servetwin.workloads.program.package import shipped_json

# Flags, without dashes, and their values; a switch is ``true`` or ``false``.
Pairs = list[tuple[str, str]]

_FILE: dict[str, dict[str, Any]] = shipped_json("sim/catalogue/servers/flags.json")
BACKENDS = tuple(_FILE)


@dataclass(frozen=True)
class Flags:
    """The flags of one server, in the spelling of its Python fields."""

    backend: str
    commands: list[str]
    aliases: Mapping[str, str]
    settings: Mapping[str, str]
    switches: list[str]
    not_simulated: Mapping[str, str]
    silent: list[str]
    weights: Mapping[str, Mapping[str, str]]
    source: str
    image: str
    """The container image of the server, without a version."""
    apart: Mapping[str, list[str]]
    """Flags of a server that computes prompts only, and of one that decodes only."""

    @classmethod
    @cache
    def of(cls, backend: str) -> Self:
        """Return the flags of ``vllm``, ``sglang`` or ``trtllm``."""
        return cls(backend, **_FILE[backend])

    def name(self, flag: str) -> str:
        """Return the field that a flag such as ``--tp-size`` or ``-tp`` sets."""
        name = flag.lstrip("-").replace("-", "_")
        return self.aliases.get(name, name)

    def is_switch(self, name: str) -> bool:
        """Return whether a flag takes no value."""
        return name != "disable_access_log_for_endpoints" and matches(name, self.switches)

    def words(self, roles: Mapping[str, int | None]) -> list[str]:
        """Return the words of a command line that give each role its number; None is a switch."""
        flags = {role: _dashed(name) for name, role in self.settings.items()}
        each = ([flags[role], *([] if n is None else [str(n)])] for role, n in roles.items())
        return [word for words in each for word in words]

    def knows(self, name: str) -> bool:
        """Return whether the server has a flag."""
        named = name in self.settings or name in self.not_simulated
        return named or matches(name, self.silent)

    def require_known(self, name: str) -> None:
        """Raise ``PolicyError`` for a flag that the server does not have, with the nearest one."""
        if not self.knows(name) and not self.knows(name.removeprefix("no_")):
            plain = [flag for flag in self.silent if "*" not in flag]
            known = [*self.settings, *self.not_simulated, *self.aliases, *plain]
            hint = did_you_mean(_dashed(name), map(_dashed, known), "leave it out")
            raise PolicyError(f"--server: {self.backend} has no flag {_dashed(name)!r}; {hint}")

    def roles(self, pairs: Pairs) -> Iterator[tuple[str, str, str]]:
        """Yield (role, flag, value) of the flags that matter, ``ignored`` for one not simulated."""
        for name, value in pairs:
            if name not in self.not_simulated and name.startswith("no_"):
                name, value = name.removeprefix("no_"), "false"
            if name == "enable_chunked_prefill" and is_off(value):
                name, value = f"no_{name}", "true"
            if name in self.settings:
                yield self.settings[name], _dashed(name), value
            elif name in self.not_simulated and not is_off(value) and value != "1":
                yield "ignored", _dashed(name), self.not_simulated[name]


def matches(name: str, patterns: list[str]) -> bool:
    """Return whether a name is one of the patterns, where ``*`` stands for anything."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_off(value: str) -> bool:
    """Return whether a value leaves a feature off."""
    return value.lower() in ("false", "none", "null", "", "0", "{}")


def _dashed(name: str) -> str:
    return "--" + name.replace("_", "-")


Backend = Literal["vllm", "sglang", "trtllm"]

_DEFAULTS: dict[str, dict[str, Any]] = shipped_json("sim/catalogue/servers/defaults.json")
# Which roles are counts, and what stands for an order, a format of keys and values, a multiple.
_VALUES: dict[str, Any] = shipped_json("sim/catalogue/servers/values.json")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A server as its owner started it; what nobody wrote is None or absent.

    ``policies`` are settings of ``PolicyConfig``, ``formats`` of ``Quantisation``. ``memory_share``
    is that of a device's memory, ``free_memory_share`` that of what the weights leave. ``replicas``
    are whole servers behind one address. ``notes`` name what a simulation leaves out.
    """

    backend: Backend
    version: str | None = None
    model: str | None = None
    layout: Layout = field(default_factory=Layout)
    replicas: int = 1
    policies: Mapping[str, Any] = field(default_factory=dict)
    memory_share: float | None = None
    free_memory_share: float | None = None
    formats: Mapping[str, str] = field(default_factory=dict)
    adapters: tuple[int, int] | None = None
    """Rank and slots of LoRA adapters."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, backend: Backend, version: str | None, pairs: Pairs) -> "ServerSettings":
        """Return the settings of flags; the last of equal ones wins.

        Raises ``PolicyError`` that names the flag and what would be right.
        """
        flags = Flags.of(backend)
        given: dict[str, tuple[str, str]] = {}
        notes = []
        for role, flag, value in flags.roles(pairs):
            if role == "ignored":
                notes.append(f"{flag}: {value}; not simulated")
            elif value.lower() not in ("none", "null", ""):
                given[role] = (flag, value)
        layout, replicas = _layout(backend, given)
        shares = {
            name: _share(*given[name])
            for name in ("memory_share", "free_memory_share")
            if name in given
        }
        return cls(
            backend, version, given["model"][1] if "model" in given else None, layout, replicas,
            _policies(given), formats=_formats(flags, given), adapters=_adapters(given),
            notes=tuple(notes), **shares,
        )  # fmt: skip

    @property
    def preset(self) -> str:
        """The preset of its policies."""
        return str(self._defaults().get("preset", _DEFAULTS[self.backend]["preset"]))

    def policy_settings(self, memory_bytes: float, device: str) -> dict[str, Any]:
        """Return what differs from ``PolicyConfig``: preset, defaults for the device, settings."""
        defaults = self._defaults()
        settings = {**find_preset(self.preset).policies, **defaults["policies"]}
        for name in ("large", "largest"):
            size = defaults.get(name, {"least_bytes": inf})
            is_small = memory_bytes < size["least_bytes"]
            if not is_small and not any(part in device.lower() for part in size["except"]):
                settings |= size["policies"]
        settings |= self.policies
        if "max_seqs" not in self.policies:
            settings["max_seqs"] = min(settings["max_seqs"], settings["token_budget"])
        return settings

    def memory(self) -> tuple[float | None, float | None]:
        """Return the share of the memory, and of what the weights leave: given, or by default."""
        defaults = self._defaults()
        if self.memory_share is not None or self.free_memory_share is not None:
            return self.memory_share, self.free_memory_share
        return defaults.get("memory_share"), defaults.get("free_memory_share")

    def _defaults(self) -> dict[str, Any]:
        """Return the defaults of its version; without one, of the newest."""
        return of_version(_DEFAULTS[self.backend]["versions"], self.version)


Given = Mapping[str, tuple[str, str]]


def _layout(backend: Backend, given: Given) -> tuple[Layout, int]:
    """Return the widths, and how many such servers there are."""
    tp, pp, dp, ep, moe_tp = (
        _count(*given[n]) if n in given else 1 for n in ("tp", "pp", "dp", "ep", "moe_tp")
    )
    if "moe_tp" in given:  # experts lie on all devices, whatever attention does
        ep = Layout.parse(f"tp={tp},moe_tp={moe_tp}{f',ep={ep}' if 'ep' in given else ''}").ep
    shared = "attention_dp" in given and not is_off(given["attention_dp"][1])
    if backend == "vllm":
        ep = (
            tp * dp if "expert_parallel" in given and not is_off(given["expert_parallel"][1]) else 1
        )
        return Layout(tp, pp, dp, ep), 1
    if not shared:
        return Layout(tp, pp, 1, ep), dp
    ranks = tp if backend == "trtllm" else dp
    if tp % ranks:
        raise PolicyError(
            f"--server: {given['dp'][0]} {dp} does not divide {given['tp'][0]} {tp}: attention "
            "ranks share the devices of tensor parallel"
        )
    return Layout(tp // ranks, pp, ranks, ep), 1


def layout_roles(backend: Backend, layout: Layout) -> dict[str, int | None]:
    """Return the flags of a layout by their roles, as ``_layout`` reads them; None is a switch."""
    tp, roles = layout.tp, dict[str, int | None]()
    if backend == "vllm" and layout.ep > 1:
        roles["expert_parallel"] = None
    elif layout.ep > 1:
        roles["ep"] = layout.ep
    if layout.dp > 1 and backend != "vllm":
        tp, roles["attention_dp"] = layout.stage_devices, None
    widths = {"tp": tp, "pp": layout.pp, "dp": layout.dp}
    return {name: width for name, width in widths.items() if width > 1} | roles


def _policies(given: Given) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name in _VALUES["counts"]:
        if name in given and given[name][1] not in ("auto", "-1"):
            settings[name] = _count(*given[name])
    if "kv_blocks" in given and "kv_tokens" not in settings:
        settings["kv_tokens"] = _count(*given["kv_blocks"]) * settings.get("block_tokens", 16)
    if "active_seqs" in given:  # as few of those for which the runner has room
        active = _count(*given["active_seqs"])
        settings["max_seqs"] = min(active, settings.get("max_seqs", active))
    for name in ("prefix_cache", "decide_ahead", "long_prefill_adaptive"):
        if name in given:
            settings[name] = not is_off(given[name][1])
    if "no_prefix_cache" in given:
        settings["prefix_cache"] = is_off(given["no_prefix_cache"][1])
    if "queue_order" in given:
        flag, order = given["queue_order"]
        if order not in _VALUES["orders"]:
            raise _unknown(flag, order, _VALUES["orders"])
        settings["queue_order"] = _VALUES["orders"][order]
    return settings


def _adapters(given: Given) -> tuple[int, int] | None:
    """Return rank and slots of adapters, by default vLLM's 16 and 1; None where they are off."""
    if "lora" not in given or is_off(given["lora"][1]):
        return None
    rank, slots = (
        _count(*given[name]) if name in given else usual
        for name, usual in (("adapter_rank", 16), ("adapter_slots", 1))
    )
    return rank, slots


def _formats(flags: Flags, given: Given) -> dict[str, str]:
    """Return the formats by part; where a flag says none, the checkpoint's apply."""
    formats: dict[str, str] = {}
    for role, known in (("weights", flags.weights), ("kv", _VALUES["kv"])):
        if role not in given:
            continue
        flag, value = given[role]
        name = value.lower().replace("torch.", "")
        if name not in known:
            raise _unknown(flag, value, known)
        form = known[name]
        formats |= form if isinstance(form, Mapping) else {"kv": form} if form else {}
    return formats


def _count(flag: str, text: str) -> int:
    """Return a whole number: ``8192``, ``8k`` (8,000), ``8K`` (8,192)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", text)
    number = float(match[1]) * _VALUES["multiples"][match[2]] if match else 0.0
    if number < 1 or number != int(number):
        raise PolicyError(f"--server: {flag} {text}: not a whole number of at least 1")
    return int(number)


def _share(flag: str, text: str) -> float:
    share = number_in(text)
    if not 0 < share <= 1:
        raise PolicyError(f"--server: {flag} {text}: not a share above 0 and up to 1, such as 0.9")
    return share


def _unknown(flag: str, value: str, known: Mapping[str, Any]) -> PolicyError:
    return PolicyError(f"--server: {flag} {value}: {did_you_mean(value, known)}")
