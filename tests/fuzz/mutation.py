"""Random changes of bytes and of JSON values, as clients and files in the wild get them wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np

JsonValue = Any
"""What ``json.loads`` may return; changed in place nowhere."""

ODD_TOKENS = [
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"{", b"}", b"[", b"]", b'"',
    b":", b",", b"NaN", b"1e309", b"-0", b"null", b"\\u0000", b"\\ud800", b"\xf0\x9f\x92\xa9",
    b"9" * 30, b" " * 40,
]  # fmt: skip
"""Byte strings that parsers get wrong."""

ODD_VALUES: list[JsonValue] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**40, 0.5, -0.0, 1e-320, 1e308,
    float("nan"), float("inf"), "", "a", "\x00", "\ud800", "é" * 50, "1", "nan", [], [[]], {},
    [None], [True] * 20, {"": {}}, {"a": [{"b": []}]},
]  # fmt: skip
"""Values that a field was not made for."""

DEEPEST = 60
"""Levels of nesting around a value at most; deeper ones are cases of their own."""


def mutated_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    """Return ``data`` after one to four random changes."""
    for _ in range(rng.integers(1, 5)):
        change = _BYTE_CHANGES[rng.integers(len(_BYTE_CHANGES))]
        data = change(rng, data)
    return data


def mutated_json(rng: np.random.Generator, value: JsonValue) -> JsonValue:
    """Return ``value`` with one to three of its parts replaced, repeated, wrapped or left out."""
    for _ in range(rng.integers(1, 4)):
        value = _changed_somewhere(rng, value)
    return value


def _changed_somewhere(rng: np.random.Generator, value: JsonValue) -> JsonValue:
    """Change ``value`` itself or a part of it."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return _changed(rng, value)
    if isinstance(value, list):
        place = int(rng.integers(len(value)))
        return [*value[:place], *_changed_item(rng, value[place]), *value[place + 1 :]]
    name = list(value)[rng.integers(len(value))]
    if rng.random() < 0.1:
        return {key: part for key, part in value.items() if key != name}
    return {**value, name: _changed_somewhere(rng, value[name])}


def _changed_item(rng: np.random.Generator, item: JsonValue) -> list[JsonValue]:
    """Return what stands in place of an item of a list: nothing, several, or a changed one."""
    draw = rng.random()
    if draw < 0.1:
        return []
    return [item] * int(rng.integers(2, 50)) if draw < 0.2 else [_changed_somewhere(rng, item)]


def _changed(rng: np.random.Generator, value: JsonValue) -> JsonValue:
    """Return another value in place of ``value``."""
    draw = rng.random()
    if draw < 0.15:
        for _ in range(rng.integers(1, DEEPEST)):
            value = [value] if rng.random() < 0.5 else {"a": value}
        return value
    if draw < 0.3 and isinstance(value, str):
        return mutated_bytes(rng, value.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")
    if draw < 0.3 and isinstance(value, int | float):
        return value * float(rng.choice([-1.0, 0.5, 1e10, 1e-300]))
    return ODD_VALUES[rng.integers(len(ODD_VALUES))]


def _flip_bit(rng: np.random.Generator, data: bytes) -> bytes:
    if not data:
        return data
    place = int(rng.integers(len(data)))
    flipped = data[place] ^ (1 << int(rng.integers(8)))
    return data[:place] + bytes([flipped]) + data[place + 1 :]


def _insert(rng: np.random.Generator, data: bytes) -> bytes:
    place = int(rng.integers(len(data) + 1))
    return data[:place] + ODD_TOKENS[rng.integers(len(ODD_TOKENS))] + data[place:]


def _insert_noise(rng: np.random.Generator, data: bytes) -> bytes:
    place = int(rng.integers(len(data) + 1))
    return data[:place] + rng.bytes(int(rng.integers(1, 9))) + data[place:]


def _cut_out(rng: np.random.Generator, data: bytes) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def _cut_off(rng: np.random.Generator, data: bytes) -> bytes:
    return data[: int(rng.integers(len(data) + 1))]


def _repeat(rng: np.random.Generator, data: bytes) -> bytes:
    start, end = _span(rng, data)
    return data[:end] + data[start:end] * int(rng.integers(1, 20)) + data[end:]


def _swap(rng: np.random.Generator, data: bytes) -> bytes:
    start, end = _span(rng, data)
    middle = (start + end) // 2
    return data[:start] + data[middle:end] + data[start:middle] + data[end:]


def _span(rng: np.random.Generator, data: bytes) -> tuple[int, int]:
    """Draw a piece of at most 64 bytes."""
    start = int(rng.integers(len(data) + 1))
    return start, min(len(data), start + int(rng.integers(1, 65)))


_BYTE_CHANGES: list[Callable[[np.random.Generator, bytes], bytes]] = [
    _flip_bit, _insert, _insert_noise, _cut_out, _cut_off, _repeat, _swap,
]  # fmt: skip
