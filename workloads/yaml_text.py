"""YAML as people write it in a file: bounded, plain values, each key once.

Raises ``YamlError``, whose text is one line that begins with the number of the line.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import yaml

MOST_CHARACTERS = 2**20
MOST_LEVELS = 50
# Limit of values, where an alias counts as what it stands for.
MOST_VALUES = 100_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_PLAIN = "tag:yaml.org,2002:"


class YamlError(ValueError):
    """A text is not the YAML that is read here."""


def load_yaml(text: str | bytes) -> Any:
    """Return the value of a YAML text; bytes are in UTF-8."""
    if isinstance(text, bytes):
        text = _decoded(text)
    if len(text) > MOST_CHARACTERS:
        raise YamlError(f"line 1: more than {MOST_CHARACTERS:,} characters")
    try:
        _require_flat(text)
        loader = _LOADER(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _check(root)
            return loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(f"line {mark.line + 1 if mark else 1}: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, YamlError):
            raise
        raise YamlError(f"line 1: {' '.join(str(error).split())}") from error


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlError(f"line {line}: not a text in UTF-8") from None


def _require_flat(text: str) -> None:
    """Raise where levels go too deep for what composes the values."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MOST_LEVELS:
                raise _error(event.start_mark, f"more than {MOST_LEVELS} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check(root: yaml.Node) -> None:
    for count, node in enumerate(islice(_values(root, frozenset()), MOST_VALUES + 1)):
        if count == MOST_VALUES:
            raise _error(node.start_mark, f"more than {MOST_VALUES:,} values")
        if not node.tag.startswith(_PLAIN) or "python" in node.tag:
            raise _error(node.start_mark, f"the tag {node.tag}; values have none here")
        if isinstance(node, yaml.MappingNode):
            _require_each_once(node)
        elif node.tag in _NUMBERS and ":" in node.value:
            raise _error(
                node.start_mark,
                f"{node.value} would be a number to the base of 60; write it as one, or quote it",
            )


def _values(node: yaml.Node, above: frozenset[int]) -> Iterator[yaml.Node]:
    """Yield a node and all in it, also what aliases stand for."""
    if id(node) in above:
        raise _error(node.start_mark, "a value that contains itself")
    yield node
    inner = above | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _values(item, inner)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _values(key, inner)
            yield from _values(value, inner)


def _require_each_once(mapping: yaml.MappingNode) -> None:
    names = set()
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _error(key.start_mark, "a key that is no plain text")
        if key.value in names:
            raise _error(key.start_mark, f"the key {key.value!r} is there twice")
        names.add(key.value)


def _error(mark: Any, problem: str) -> YamlError:
    return YamlError(f"line {mark.line + 1}: {problem}")
