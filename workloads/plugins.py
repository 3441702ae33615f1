"""Plug-ins: a class is found by its registered name, or loaded from a file as ``path.py:Class``.

Each kind of plug-in has one ``Registry``: scheduler, KV memory, eviction order, router, step time,
arrival process, trace reader, technique. To ship a plug-in, name it there: help texts, the
generated reference, the dashboard's choices and the tests over all plug-ins follow from it.
"""

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from servetwin.workloads.errors import PolicyError, ServetwinError, did_you_mean

if TYPE_CHECKING:
    from servetwin.workloads.plugin_guard import PluginSource

_BY_PATH = re.compile(r"(?P<path>.+\.py):(?P<name>\w+)(?::(?P<settings>.*))?", re.DOTALL)

Built = TypeVar("Built")


def names_a_file(name: str) -> bool:
    """Return whether ``name`` is ``path.py:Class``, with or without settings."""
    return _BY_PATH.fullmatch(name) is not None


def split_settings(text: str) -> tuple[str, str]:
    """Return the name and the settings of ``NAME:SETTINGS`` or ``path.py:Class:SETTINGS``."""
    if match := _BY_PATH.fullmatch(text):
        return f"{match['path']}:{match['name']}", match["settings"] or ""
    name, _, settings = text.partition(":")
    return name, settings


class ClassName(str):
    """The name of a class that was given in place of a name; it stands for that very class."""

    plugin: type[Any]

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and getattr(other, "plugin", None) is self.plugin

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


@dataclass(eq=False, repr=False)
class Registry(Mapping[str, Any], Generic[Built]):
    """The plug-ins of one kind, by name.

    ``role`` is the setting that names one, ``kind`` what it is, ``takes`` the arguments of its
    constructor. ``interface`` (``interface_name``, ``module:Class``) has the methods and attributes
    that it must have; where that is no Protocol, a plug-in must derive from it. A ``known`` name
    stands for ``module:Class``, or for a whole module, imported when it is first used.

    An unknown name is an ``error``. Of a plug-in loaded by path, ``checks`` (``module:NAME``, a
    dict by method) say what is wrong with a returned value, and ``prepare`` is called with its
    class when that is loaded.
    """

    role: str
    kind: str
    interface_name: str
    takes: str
    known: Mapping[str, Any]
    error: type[ServetwinError] = field(default=PolicyError, kw_only=True)
    checks: str = field(default="", kw_only=True)
    prepare: str = field(default="", kw_only=True)
    _guarded: dict[type[Any], type[Any]] = field(default_factory=dict, init=False)

    def __getitem__(self, name: str) -> Any:
        return _resolved(self.known[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)

    def __contains__(self, name: object) -> bool:
        return name in self.known

    @property
    def interface(self) -> type[Any]:
        """The interface of a plug-in of this kind."""
        interface: type[Any] = _resolved(self.interface_name)
        return interface

    def name_of(self, plugin: "str | type[Any]") -> str:
        """Return the name of a plug-in that is given by name, or as a class.

        Raises the kind's error for anything else.
        """
        if isinstance(plugin, str):
            return plugin
        if not isinstance(plugin, type):
            hint = "it must be a name, path.py:Class or a class"
            raise self.error(f"{self.role}: {plugin!r} is not possible; {hint}")
        target = f"{plugin.__module__}:{plugin.__qualname__}"
        for name, known in self.known.items():
            if known is plugin or known == target:
                return name
        file = getattr(sys.modules.get(plugin.__module__), "__file__", None)
        given = ClassName(f"{file or plugin.__module__ + '.py'}:{plugin.__name__}")
        given.plugin = plugin
        return given

    def require(self, name: str) -> None:
        """Raise the kind's error where ``name`` is neither registered nor ``path.py:Class``."""
        if name in self.known or (names_a_file(name) and not split_settings(name)[1]):
            return
        known = ", ".join(sorted(self.known))
        hint = did_you_mean(
            name, self.known, f"known are {known}" if known else "none is registered"
        )
        what = f"{self.role}: unknown {self.kind} {name!r}"
        raise self.error(f"{what}; {hint} (or name a class as path.py:Class)")

    def find(self, name: str) -> Any:
        """Return the registered class or module, or the guarded class of a file.

        Raises the kind's error for an unknown name, ``PluginError`` for a file that does not load.
        """
        self.require(name)
        if name in self.known:
            return self[name]
        from servetwin.workloads.plugin_guard import PluginSource, load_module

        path, _, class_name = name.rpartition(":")
        source = PluginSource(self.role, Path(path), class_name)
        if isinstance(name, ClassName):
            return self._guard(name.plugin, source)
        cls = getattr(load_module(source), class_name, None)
        if not isinstance(cls, type):
            raise source.error(f": the file has no class {class_name!r}")
        return self._guard(cls, source)

    def build(self, name: str, *args: Any, **kwargs: Any) -> Built:
        """Return the plug-in ``name``, built with these arguments.

        Raises the kind's error for an unknown name and ``PluginError`` for a class that cannot be
        loaded, cannot be built, or lacks what its kind must have.
        """
        plugin = self.find(name)
        if isinstance(plugin, ModuleType):
            return plugin  # type: ignore[return-value]
        if name in self.known:
            made: Built = plugin(*args, **kwargs)
            return made
        from servetwin.workloads.plugin_guard import check_constructor, check_instance

        source = plugin.__plugin__
        check_constructor(source, plugin, self.takes, args, kwargs)
        made = source.run("()", plugin, *args, **kwargs)
        source.run("", check_instance, source, made, self.interface)
        return made

    def _guard(self, cls: type[Any], source: "PluginSource") -> type[Any]:
        from servetwin.workloads.plugin_guard import guard_class, is_protocol

        if not is_protocol(self.interface) and not issubclass(cls, self.interface):
            wanted = f"{self.interface.__module__}.{self.interface.__name__}"
            raise source.error(f" does not derive from {wanted}")
        if cls not in self._guarded:
            if self.prepare:
                _resolved(self.prepare)(cls)
            checks = _resolved(self.checks) if self.checks else {}
            self._guarded[cls] = guard_class(cls, source, self.interface, checks)
        return self._guarded[cls]


def _resolved(target: Any) -> Any:
    """Return what ``module:Class`` or ``module`` names; anything else is itself."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, name) if name else imported


def plugin_name(plugin: object) -> str:
    """Return the class of a plug-in for a message, with its file where it has one of its own."""
    source = getattr(type(plugin), "__plugin__", None)
    return f"{source.path}: {source.name}" if source else type(plugin).__name__
