"""Option groups: a frozen dataclass declares options once, for every command that takes them.

A field ``Annotated[kind, Option(...)] = default`` is an option, and the sentence below it is its
help, unless ``Option`` has one; a field whose type is a group stands for the options of that group;
any other field is for the command to set. ``Annotated[Group, ("limit", "start_s")]`` has these
fields alone. ``PANEL`` of the class is the heading of its options in ``--help``.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter
from math import isfinite
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.program.key_values import MOST_NUMBER

MOST_COUNT = 2**31 - 1


class OptionError(ServetwinError):
    """An option is impossible, or does not go with another one."""


def bounded(declared: Any) -> Callable[[typer.CallbackParam, Any], Any]:
    """Return the callback of an option of numbers, which raises ``OptionError``.

    ``declared`` is its ``typer.Option``.
    """

    def check(param: typer.CallbackParam, value: Any) -> Any:
        numbers = value if isinstance(value, list | tuple) else [value]
        for number in numbers:
            if isinstance(number, int | float) and (wrong := _problem(number, declared)):
                name = param.opts[0]
                raise OptionError(f"{name}: {str(number)[:20]} is impossible; give {wrong}")
        return value

    return check


def _problem(number: float, declared: Any) -> str | None:
    """Return what is right where a number is impossible; declared bounds are checked elsewhere."""
    most = MOST_COUNT if isinstance(number, int) else MOST_NUMBER
    if isinstance(number, float) and not isfinite(number):
        return "a finite number"
    if declared.min is None and number < 0:
        return "at least 0"
    if declared.max is None and number > most:
        return f"at most {most:,.0f}"
    return None


def given(group: Any, *names: str) -> dict[str, object]:
    """Return the options of a group that differ from their defaults, as the command line has them.

    ``names`` restricts them to some fields.
    """
    values: dict[str, object] = {}
    for field in fields(group):
        value, declared = getattr(group, field.name), _declared(field.type)
        if names and field.name not in names:
            continue
        if is_dataclass(value):
            values |= given(value)
        elif declared and value != field.default:
            plain = f"--{field.name.replace('_', '-')}"
            names_of_it = (declared.default, *(declared.param_decls or ()), plain)
            option = next(n for n in names_of_it if isinstance(n, str) and n.startswith("--"))
            values[option.partition("/")[0]] = value
    return values


def require_absent(options: Mapping[str, object], why: str) -> None:
    """Raise ``OptionError`` for the first option that has a value, saying ``why`` it may not."""
    for name, value in options.items():
        if value not in (None, ()):
            raise OptionError(f"{name}: {why}")


def takes_options(
    *essential: str, cls: type[Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command as typer wants it, with options in place of its groups.

    The command gets the groups, built from the command line. Its ``--help`` shows
    the ``essential`` options, ``--help-all`` every one; ``cls`` is its class beside ``Command``.
    """

    def made(command: Callable[..., None]) -> Callable[..., None]:
        taken = list(inspect.signature(command).parameters.values())
        parameters = [_for_typer(each) for parameter in taken for each in _leaves(parameter)]

        def with_options(**values: Any) -> None:
            command(**{parameter.name: _value(parameter, values) for parameter in taken})

        signature = inspect.Signature(parameters)
        annotations = {each.name: each.annotation for each in parameters}
        vars(with_options).update(__signature__=signature, essential=essential, command_class=cls)
        with_options.__annotations__ = annotations
        with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
        return with_options

    return made


def _leaves(parameter: Parameter) -> list[Parameter]:
    """Return the options that a parameter stands for: itself, or all of its group."""
    members = _members(parameter.annotation)
    return [parameter] if members is None else [leaf for each in members for leaf in _leaves(each)]


def _value(parameter: Parameter, values: dict[str, Any]) -> Any:
    members = _members(parameter.annotation)
    if members is not None:
        return _kind(parameter.annotation)(**{each.name: _value(each, values) for each in members})
    value = values[parameter.name]
    return tuple(value or ()) if _is_repeatable(parameter.annotation) else value


def _members(annotation: Any) -> list[Parameter] | None:
    """Return the options and inner groups of a group; None where the annotation is no group."""
    group = _kind(annotation)
    if not is_dataclass(group):
        return None
    everything = {field.name for field in fields(group)}
    subsets = (each for each in get_args(annotation) if isinstance(each, tuple))
    names = next(subsets, everything)
    members = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(group)
        if field.name in names and (_declared(field.type) or is_dataclass(_kind(field.type)))
    ]
    for each in members:
        if declared := _declared(each.annotation):
            declared.rich_help_panel = declared.rich_help_panel or getattr(group, "PANEL", None)
            place = f"{group.__module__}:{_kind(annotation).__name__}.{each.name}"
            declared.help = declared.help or f"{{{place}}}"
    return members


def _for_typer(parameter: Parameter) -> Parameter:
    """Return the parameter as a keyword with bounds for its numbers; a repeatable one is a list."""
    keyword = parameter.replace(kind=Parameter.KEYWORD_ONLY)
    declared = _declared(parameter.annotation)
    if declared and declared.callback is None and _is_of_numbers(_kind(parameter.annotation)):
        declared.callback = bounded(declared)
    if not _is_repeatable(parameter.annotation):
        return keyword
    item = get_args(_kind(parameter.annotation))[0]
    as_list = Annotated[list[item] | None, declared]  # type: ignore[valid-type]
    return keyword.replace(annotation=as_list, default=None)


def _kind(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _declared(annotation: Any) -> Any:
    """Return the ``typer.Option`` or ``typer.Argument`` of an annotation, or None."""
    kinds = (OptionInfo, ArgumentInfo)
    return next((each for each in get_args(annotation) if isinstance(each, kinds)), None)


def _is_of_numbers(kind: Any) -> bool:
    """Return whether the kind is a number, or several, or None."""
    return kind in (int, float) or any(map(_is_of_numbers, get_args(kind)))


def _is_repeatable(annotation: Any) -> bool:
    """Return whether the kind is ``tuple[..., ...]``: an item for each use of the option."""
    kind = _kind(annotation)
    return get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis
