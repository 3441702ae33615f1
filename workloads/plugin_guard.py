"""Faults of plug-ins: what a class of a file raises, forgets or returns wrongly, in one line.

A guarded class is a subclass of the user's: every method of its interface turns an exception into a
``PluginError`` that names file, line, class and method, and checks the type of what is returned.
Registered classes are never guarded.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from traceback import walk_tb
from types import FunctionType, ModuleType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as hints_of

import numpy as np

from servetwin.workloads.errors import PluginError, ServetwinError

_LONGEST_REASON = 300
_CLASSES: dict[type, tuple[type, ...]] = {int: (Integral,), float: (Real,), bool: (bool, np.bool_)}
# The classes of values that are returned as they are, where they are not what a hint names.
_PLAIN: dict[type, tuple[type, ...]] = {
    Integral: (int,),
    Real: (float, int),
    np.bool_: (),
    tuple: (),
    object: (),
}
_PYTHONS = {int, float, bool}
_NAMES = {Integral: "int", Real: "float", type(None): "None"}

R = TypeVar("R")
# Returns what is wrong with a returned value, given it and the arguments of the call; or None.
ValueCheck = Callable[..., str | None]


@dataclass(frozen=True, slots=True)
class PluginSource:
    """The origin of a plug-in: the setting that named it, its file and its class."""

    role: str
    path: Path
    name: str

    def error(self, problem: str, line: int | None = None) -> PluginError:
        """Return the error of one line that names file, class and problem."""
        place = f"{self.path}:{line}" if line else f"{self.path}"
        return PluginError(f"{self.role}: {place}: {self.name}{problem}")

    def failure(self, call: str, error: BaseException) -> PluginError:
        """Return the error for an exception that left ``call``."""
        file = str(self.path.absolute())
        frames = walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_code.co_filename == file]
        line = lines[-1] if lines else None  # of the deepest frame
        if isinstance(error, SyntaxError) and error.filename == file:
            line = error.lineno
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raised = f"{call} raised {type(error).__name__}"
        return self.error(f"{raised}: {reason}" if reason else raised, line)

    def run(self, call: str, body: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Return what ``body`` returns; whatever it raises is this plug-in's failure."""
        try:
            return body(*args, **kwargs)
        except (ServetwinError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the user's own code: anything may happen in it
            raise self.failure(call, error) from error


def load_module(source: PluginSource) -> ModuleType:
    """Return the module of a plug-in's file, executed once for each content of the file."""
    path = source.path
    try:
        content = path.read_bytes()
    except OSError as error:
        raise source.error(f": the file cannot be read ({error.strerror})") from None
    digest = hashlib.blake2b(content, digest_size=8, key=str(path.resolve()).encode()[-64:])
    name = f"servetwin_plugin_{digest.hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    module, file = ModuleType(name), str(path.absolute())
    module.__file__ = file
    sys.modules[name] = module  # before it is executed: dataclasses look their module up

    def execute() -> None:
        exec(compile(content, file, "exec", dont_inherit=True), vars(module))

    try:
        source.run(": the file", execute)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def guard_class(
    cls: type[Any],
    source: PluginSource,
    interface: type[Any],
    checks: Mapping[str, ValueCheck],
) -> type[Any]:
    """Return a subclass of ``cls`` whose methods of ``interface`` are guarded."""
    namespace: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    namespace["__doc__"], namespace["__plugin__"] = cls.__doc__, source
    for name, member in members(interface).items():
        method = getattr(cls, name, None)
        if isinstance(member, FunctionType) and inspect.isroutine(method):
            namespace[name] = _guarded(method, source, member, checks.get(name))
    metaclass: Callable[..., type[Any]] = type(cls)
    return source.run(": the class", metaclass, cls.__name__, (cls,), namespace)


# A guard with the parameters of its method: to pack arguments takes longer than a short call.
_GUARD = """
def guard(_method, _source, _call, _passed, _returned_as_is, _check, _defaults):
    def guarded({parameters}):
        try:  # as ``source.run``, which would be a call more
            _result = _method({arguments})
        except _passed:
            raise
        except BaseException as _error:
            raise _source.failure(_call, _error) from _error
        return _result if {is_plain} else _check(_result, {checked_with})
    return guarded
"""
_ARE_COUNTS = "_type(_result) is _tuple and _len(_result) == 3 and " + " and ".join(
    f"_type(_result[{place}]) is _int" for place in range(3)
)


_ANY_PARAMETERS: tuple[str, str, list[Any]] = ("*args, **kwargs", "*args, **kwargs", [])


def _guarded(
    method: Callable[..., Any],
    source: PluginSource,
    wanted: FunctionType,
    check: ValueCheck | None,
) -> Callable[..., Any]:
    call, line = f".{method.__name__}()", _line_in(source, method)
    returned = hints_of(wanted).get("return", Any)
    types = _types(returned)
    returned_as_is = {kind for hint in types for kind in _PLAIN.get(hint, (hint,)) if not check}

    def checked(result: Any, _: Any = None, *args: Any, **kwargs: Any) -> Any:
        if types and not isinstance(result, types):
            kinds = " or ".join(sorted(_NAMES.get(kind, kind.__name__) for kind in types))
            raise source.error(f"{call} returned {_short(result)}, not {kinds}", line)
        if check is not None and (problem := check(result, *args, **kwargs)):
            raise source.error(f"{call} returned {problem}", line)
        return _plain(result)

    parameters, arguments, defaults = _parameters(method) if check is None else _ANY_PARAMETERS
    namespace: dict[str, Any] = {"_type": type, "_tuple": tuple, "_len": len, "_int": int}
    is_plain = "_type(_result) in _returned_as_is"
    if returned == tuple[int, int, int] and check is None:  # a scheduler's load, at every step
        is_plain = _ARE_COUNTS
    guard = _GUARD.format(
        parameters=parameters,
        arguments=arguments,
        is_plain=is_plain,
        checked_with=arguments if check is not None else "",
    )
    exec(guard, namespace)
    passed = (ServetwinError, KeyboardInterrupt)
    guarded: FunctionType = namespace["guard"](
        method, source, call, passed, returned_as_is, checked, defaults
    )
    return wraps(method)(guarded)


def _parameters(method: Callable[..., Any]) -> tuple[str, str, list[Any]]:
    """Return the parameters of a guard, the arguments that it passes on, and its defaults."""
    try:
        taken = list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError):  # compiled, and without a signature
        return _ANY_PARAMETERS
    plain = all(p.kind is p.POSITIONAL_OR_KEYWORD and p.name[0] != "_" for p in taken)
    if not plain or not taken:
        return _ANY_PARAMETERS
    defaults = [p.default for p in taken if p.default is not p.empty]
    required = len(taken) - len(defaults)
    optional = [f"{p.name}=_defaults[{place}]" for place, p in enumerate(taken[required:])]
    names = [p.name for p in taken]
    return ", ".join([*names[:required], *optional]), ", ".join(names), defaults


def _line_in(source: PluginSource, method: Callable[..., Any]) -> int | None:
    """Return the line of a method of the plug-in's file; None for one that it inherits."""
    code = getattr(method, "__code__", None)
    return code.co_firstlineno if code and code.co_filename == str(source.path.absolute()) else None


def _plain(value: Any) -> Any:
    """Return a number of NumPy's, or of another kind, as Python's: a compiled core takes these."""
    if type(value) is tuple:
        return value if _PYTHONS.issuperset(map(type, value)) else tuple(map(_plain, value))
    if isinstance(value, (int, float)):
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
    """Raise ``PluginError`` where ``cls`` cannot be called with these arguments.

    A compiled constructor may have no signature; ``inspect`` would return that of its base.
    """
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    is_compiled = owner is not object and not isinstance(vars(owner)["__init__"], FunctionType)
    if is_compiled and owner.__text_signature__ is None:
        return
    try:
        inspect.signature(cls).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise source.error(f" is built as {source.name}({takes}): {error}") from None


def members(interface: type[Any]) -> dict[str, Any]:
    """Return what ``interface`` declares by name: functions, properties, types of attributes."""
    declared: dict[str, Any] = {}
    for base in reversed(interface.__mro__):
        if base is interface or is_protocol(base):
            declared |= inspect.get_annotations(base)
            declared |= {
                name: member
                for name, member in vars(base).items()
                if isinstance(member, FunctionType | property)
            }
    return {n: m for n, m in declared.items() if not n.startswith(("_", "model_"))}


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
    """Return the classes that a type hint allows; empty if any value is allowed."""
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


def plugin_error(error: BaseException) -> ServetwinError | None:
    """Return the error to print for an exception: itself, or that of a plug-in's file in which it
    was raised; None where it is neither."""
    if isinstance(error, ServetwinError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return None
    files = {
        module.__file__
        for name, module in list(sys.modules.items())
        if name.startswith("servetwin_plugin_")
    }
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        if (file := frame.f_code.co_filename) in files:
            source = PluginSource("plug-in", Path(file), frame.f_code.co_qualname)
            return source.failure("()", error)
    return None
