"""Kinds of input that are read or refused: samples of each, and the law for all of them.

A case is the name of its kind on a line of its own, and then a changed sample. The law: what is
read can be used, and what is refused is an error of ours in one line.
"""

import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from servetwin.workloads.errors import ServetwinError
from tests.fuzz.campaign import Check, Draw
from tests.fuzz.mutation import ODD_VALUES, mutated_bytes, mutated_json

Read = Callable[[bytes], object]
"""Reads an input, and does with it what the program does next."""

_PARTS = re.compile(rb"([,\n=:<>+]|(?<=[0-9])(?=[a-z%]))")
_ODD_PARTS = [
    *(json.dumps(value).encode() for value in ODD_VALUES), b"", b" ", b"1e309", b"9" * 400, b"-1",
    b"0x10", b"1_0", "٣".encode(), "²".encode(), b"1e-400", b"nan", b"-inf", b"1" + b"0" * 25,
]  # fmt: skip
"""What may stand in a cell, or as a value of a key."""


class Kind(NamedTuple):
    """A kind of input."""

    samples: Sequence[bytes]
    read: Read


def written(read: Callable[[Path], object], name: str = "t") -> Read:
    """Return what reads an input from a file called ``name``."""

    def read_file(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            return read(path)

    return read_file


def draw_of(kinds: Mapping[str, Kind]) -> Draw:
    """Return what draws a kind and a changed sample of it."""
    names = list(kinds)

    def draw(rng: np.random.Generator) -> bytes:
        name = names[rng.integers(len(names))]
        samples = kinds[name].samples
        return name.encode() + b"\n" + _changed(rng, samples[int(rng.integers(len(samples)))])

    return draw


def check_of(kinds: Mapping[str, Kind]) -> Check:
    """Return what asserts the law of a case."""

    def check(data: bytes) -> None:
        name, _, sample = data.partition(b"\n")
        try:
            kinds[name.decode()].read(sample)
        except ServetwinError as error:
            if "\n" in str(error):
                raise AssertionError(f"several lines: {error}") from error
            str(error).encode(errors="backslashreplace")

    return check


def _changed(rng: np.random.Generator, sample: bytes) -> bytes:
    """Change the values, the parts between separators, or the bytes of a sample."""
    change = rng.random()
    if change < 0.5 and (lines := _json_lines(sample)) is not None:
        place = rng.integers(len(lines))
        lines[place] = mutated_json(rng, lines[place])
        return b"\n".join(json.dumps(line).encode() for line in lines)
    if change < 0.7:
        parts = _PARTS.split(sample)
        parts[2 * rng.integers((len(parts) + 1) // 2)] = _ODD_PARTS[rng.integers(len(_ODD_PARTS))]
        return b"".join(parts)
    return mutated_bytes(rng, sample)


def _json_lines(sample: bytes) -> list[object] | None:
    """Return the values of JSON, or of JSON Lines; None for a sample that is neither."""
    for texts in ([sample], sample.splitlines()):
        try:
            return [json.loads(text) for text in texts]
        except ValueError:
            continue
    return None
