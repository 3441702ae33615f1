"""Faults of plug-ins: what a class of a file raises, forgets or returns wrongly, in one line.

A guarded class is a subclass of the user's: every method of its interface turns an exception into a
``PluginError`` that names file, line, class and method, and checks the type of what is returned.
A call that does not return is ended by a signal timer, which exists in the main thread alone: in
other threads, and on systems without ``signal.setitimer``, there is no time limit. Registered
classes are never guarded.
"""

import inspect
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from threading import get_ident, main_thread
from traceback import walk_tb
from types import FrameType, FunctionType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as hints_of

import numpy as np

from servetwin.workloads.errors import PluginError, ServetwinError

_LONGEST_REASON = 300
_HAS_TIMER = hasattr(signal, "setitimer")
_MAIN = main_thread().ident
_CLASSES: dict[type, tuple[type, ...]] = {int: (Integral,), float: (Real,), bool: (bool, np.bool_)}
_NAMES = {Integral: "int", Real: "float", type(None): "None"}

R = TypeVar("R")
ValueCheck = Callable[..., str | None]
"""What is wrong with a returned value, given it and the arguments of the call; None: nothing."""


class TimeLimitReached(BaseException):
    """A plug-in did not return in time; no ``except Exception`` of its own swallows this."""


class TimeLimit:
    """Raises ``TimeLimitReached`` in the main thread where a block takes longer than its limit.

    Only the outermost of nested limits counts. None is no limit.
    """

    _active = False

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._armed = False

    def __enter__(self) -> None:
        if TimeLimit._active or self._limit_s is None or not _HAS_TIMER or get_ident() != _MAIN:
            return
        self._armed = TimeLimit._active = True
        self._handler = signal.signal(signal.SIGALRM, _stop)
        self._timer = signal.setitimer(signal.ITIMER_REAL, self._limit_s)

    def __exit__(self, *_: object) -> None:
        if self._armed and get_ident() == _MAIN:
            signal.setitimer(signal.ITIMER_REAL, *self._timer)
            signal.signal(signal.SIGALRM, self._handler)
            self._armed = TimeLimit._active = False


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeLimitReached


@dataclass(frozen=True, slots=True)
class PluginSource:
    """Where a plug-in comes from: the setting that named it, its file and its class."""

    role: str
    path: Path
    name: str

    def error(self, problem: str, line: int | None = None) -> PluginError:
        """Return the error of one line that names file, class and problem."""
        place = f"{self.path}:{line}" if line else f"{self.path}"
        return PluginError(f"{self.role}: {place}: {self.name}{problem}")

    def failure(self, call: str, error: BaseException, limit_s: float | None) -> PluginError:
        """Return the error for an exception that left ``call``."""
        file = str(self.path.absolute())
        frames = walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_code.co_filename == file]
        line = lines[-1] if lines else None  # of the deepest frame
        if isinstance(error, SyntaxError) and error.filename == file:
            line = error.lineno
        if isinstance(error, TimeLimitReached):
            return self.error(f"{call} did not return within {limit_s:g} s", line)
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raised = f"{call} raised {type(error).__name__}"
        return self.error(f"{raised}: {reason}" if reason else raised, line)

    def run(
        self, call: str, limit_s: float | None, body: Callable[..., R], /, *args: Any, **kwargs: Any
    ) -> R:
        """Return what ``body`` returns; whatever it raises is this plug-in's failure."""
        try:
            with TimeLimit(limit_s):
                return body(*args, **kwargs)
        except (ServetwinError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the user's own code: anything may happen in it
            raise self.failure(call, error, limit_s) from error


def guard_class(
    cls: type[Any],
    source: PluginSource,
    interface: type[Any],
    checks: Mapping[str, ValueCheck],
    limit_s: float | None,
) -> type[Any]:
    """Return a subclass of ``cls`` whose methods of ``interface`` are guarded."""
    namespace: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    namespace["__doc__"], namespace["__plugin__"] = cls.__doc__, source
    for name, member in members(interface).items():
        method = getattr(cls, name, None)
        if isinstance(member, FunctionType) and inspect.isroutine(method):
            types = _types(hints_of(member).get("return", Any))
            namespace[name] = _guarded(method, source, types, checks.get(name), limit_s)
    metaclass: Callable[..., type[Any]] = type(cls)
    return source.run(": the class", limit_s, metaclass, cls.__name__, (cls,), namespace)


def _guarded(
    method: Callable[..., Any],
    source: PluginSource,
    types: tuple[type, ...],
    check: ValueCheck | None,
    limit_s: float | None,
) -> Callable[..., Any]:
    call, line = f".{method.__name__}()", _line_in(source, method)

    @wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = source.run(call, limit_s, method, self, *args, **kwargs)
        if types and not isinstance(result, types):
            wanted = " or ".join(sorted(_NAMES.get(kind, kind.__name__) for kind in types))
            raise source.error(f"{call} returned {_short(result)}, not {wanted}", line)
        if check is not None and (problem := check(result, *args, **kwargs)):
            raise source.error(f"{call} returned {problem}", line)
        return _plain(result)

    return guarded


def _line_in(source: PluginSource, method: Callable[..., Any]) -> int | None:
    """Return the line of a method of the plug-in's file; None for one that it inherits."""
    code = getattr(method, "__code__", None)
    return code.co_firstlineno if code and code.co_filename == str(source.path.absolute()) else None


def _plain(value: Any) -> Any:
    """Return a number of NumPy's, or of another kind, as Python's: a compiled core takes these."""
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(_plain, value))
    if isinstance(value, int | float):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def check_instance(source: PluginSource, instance: object, interface: type[Any]) -> None:
    """Raise ``PluginError`` where ``instance`` lacks a member of ``interface``."""
    for name, member in members(interface).items():
        if isinstance(member, FunctionType):
            _check_method(source, getattr(instance, name, None), name, member)
            continue
        hint = hints_of(member.fget)["return"] if isinstance(member, property) else member
        if not hasattr(instance, name):
            raise source.error(f" has no attribute {name!r}")
        if not _fits(value := getattr(instance, name), hint):
            wanted = getattr(hint, "__name__", str(hint).replace("typing.", ""))
            raise source.error(f".{name} is {_short(value)}, not {wanted}")


def _check_method(source: PluginSource, method: object, name: str, wanted: FunctionType) -> None:
    if not callable(method):
        raise source.error(f" has no method {name}()")
    parameters = list(inspect.signature(wanted).parameters.values())[1:]
    required = [p for p in parameters if p.default is p.empty]
    takes = ", ".join(p.name for p in parameters)
    for given in (parameters, required):
        try:
            inspect.signature(method).bind(*given)
        except TypeError as error:
            raise source.error(f".{name}() must take ({takes}): {error}") from None


def check_constructor(
    source: PluginSource, cls: type[Any], takes: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise ``PluginError`` where ``cls`` cannot be called with these arguments."""
    try:
        inspect.signature(cls).bind(*args, **kwargs)
    except TypeError as error:
        raise source.error(f" is built as {source.name}({takes}): {error}") from None


def members(interface: type[Any]) -> dict[str, Any]:
    """Return what ``interface`` declares by name: functions, properties, types of attributes."""
    found: dict[str, Any] = {}
    for base in reversed(interface.__mro__):
        if base is interface or is_protocol(base):
            found |= inspect.get_annotations(base)
            found |= {
                name: member
                for name, member in vars(base).items()
                if isinstance(member, FunctionType | property)
            }
    return {n: m for n, m in found.items() if not n.startswith(("_", "model_"))}


def is_protocol(kind: type[Any]) -> bool:
    """Return whether ``kind`` is a Protocol, which a class need not derive from."""
    return bool(getattr(kind, "_is_protocol", False)) and kind.__module__ != "typing"


def _fits(value: object, hint: Any) -> bool:
    while get_origin(hint) in (ClassVar, Annotated):
        hint = get_args(hint)[0]
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    types = _types(hint)
    return not types or isinstance(value, types)


def _types(hint: Any) -> tuple[type, ...]:
    """Return the classes of which a value of ``hint`` is; none where anything may be."""
    origin = get_origin(hint) or hint
    if origin in (Union, UnionType):
        parts = [_types(part) for part in get_args(hint)]
        return tuple(kind for part in parts for kind in part) if all(parts) else ()
    if origin is ClassVar:
        return _types(get_args(hint)[0])
    if hint is None:
        return (type(None),)
    if not isinstance(origin, type) or is_protocol(origin):
        return ()
    return _CLASSES.get(origin, (origin,))


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
