"""Every command, its options by kind, and arguments with which it would soon be done."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from tests.support.command import SERVER, commands
from tests.support.paths import SAMPLE

NOWHERE = "http://127.0.0.1:9"
"""No server is there."""
NO_ADDRESS = "203.0.113.1"
"""No machine may listen there."""
SOME = ("--limit", 5)

USUAL: dict[str, tuple[object, ...]] = {
    "replay": (SAMPLE, *SERVER, *SOME, "--replications", 0),
    "replay compare": ("static", "vllm-v1", SAMPLE, *SERVER, *SOME, "--replications", 0),
    "capacity": (SAMPLE, *SERVER, *SOME, "--slo", "ttft=1s", "--replications", 0),
    "plan": (SAMPLE, *SOME, "--model", "qwen3-8b", "--slo", "ttft=1s", "--processes", 1),
    "sweep": (SAMPLE, *SERVER, *SOME, "--slo", "ttft=1s", "--processes", 1),
    "workload stats": (SAMPLE,),
    "workload generate": ("--out", "made.jsonl", "--requests", 5),
    "workload anonymise": (SAMPLE, "hidden.jsonl"),
    "workload convert": (SAMPLE, "made.jsonl", *SOME),
    "loadtest": (NOWHERE, "--trace", SAMPLE, *SOME),
    "verify": ("--url", NOWHERE, *SOME),
    "calibrate": ("--url", NOWHERE),
    "record": ("--upstream", NOWHERE, "--out", "live.jsonl", "--host", NO_ADDRESS),
    "serve": ("--mock", "--host", NO_ADDRESS),
    "explain": ("run", "--slowest", 1),
    "compare": ("run", "run"),
    "report": ("run",),
}


class Parameter(NamedTuple):
    """An option or an argument of a command; ``kinds`` are the types of its values."""

    command: str
    name: str
    kinds: tuple[Any, ...]
    is_option: bool
    nargs: int

    @property
    def words(self) -> list[str]:
        """The command, as it is written."""
        return self.command.split()


def parameters() -> Iterator[Parameter]:
    """Yield all options and arguments of all commands."""
    for command, built in _leaves("", commands()):
        declared = inspect.signature(built.callback).parameters
        for each in built.params:
            if each.name in declared:
                kind = get_args(declared[each.name].annotation)[0]
                is_option = each.opts[0].startswith("-")
                yield Parameter(command, each.opts[0], _kinds(kind), is_option, each.nargs)


def of_numbers() -> list[Parameter]:
    """Return every option of numbers."""
    return [each for each in parameters() if {int, float} & set(each.kinds)]


def of_paths() -> list[Parameter]:
    """Return every option and argument that is a path."""
    return [each for each in parameters() if Path in each.kinds]


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    for sub, each in inner.items():
        yield from _leaves(f"{name} {sub}".strip(), each)
    if command.callback and command.params:
        yield name, command


def _kinds(kind: Any) -> tuple[Any, ...]:
    inner = [part for part in get_args(kind) if part not in (type(None), Ellipsis)]
    return tuple(each for part in inner for each in _kinds(part)) if inner else (kind,)
