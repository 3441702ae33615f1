"""CSV files of measured times, checked as they are read: errors name file, line and column."""

import csv
from math import inf
from pathlib import Path

import numpy as np
import pandas as pd

from servetwin.sim.step_times.step_time import FloatArray
from servetwin.workloads.errors import ProfileError, TraceError, require_name
from servetwin.workloads.files import open_text
from servetwin.workloads.rows import RowError, utf8

# By unit: the least and the most that the shortest time of a table may last, the seconds of the
# unit, and the units that shorter and longer times look like. Steps, in ms: no kernel is quicker
# than 1 us, and no table's shortest step takes longer than 10 s. Kernels, in us: a GPU starts none
# quicker than in 1 us; the shortest of a file takes less than 1 ms.
_UNITS = {
    "ms": (1e-6, 10.0, 1e-3, "microseconds or nanoseconds", "seconds"),
    "us": (0.3e-6, 1e-3, 1e-6, "nanoseconds", "ms or seconds"),
}

# A share that a time may fall by where there is more work. Kernels have dips where a tile fits: up
# to 6 % in layer times measured through vLLM on two devices. The published table of splitwise-sim
# has 9 % between answers of different length.
MOST_FALL = 0.20


class Measurements:
    """The rows of a CSV file with a header, as text, by line number."""

    def __init__(self, path: Path, frame: pd.DataFrame) -> None:
        self.path = path
        self.frame = frame

    @classmethod
    def read(cls, path: Path | str) -> "Measurements":
        """Read a CSV; raise ``ProfileError`` where its rows are not equally long."""
        path = Path(path)
        try:
            with open_text(path) as file:
                reader = csv.reader(file, strict=True)
                rows = [(reader.line_num, [utf8(cell) for cell in row]) for row in reader if row]
        except (TraceError, RowError, csv.Error) as error:
            raise ProfileError(f"{path}: the table cannot be read ({error})") from error
        if len(rows) < 2:
            raise ProfileError(f"{path}: no rows; expected a CSV with a header and a row per point")
        header = [name.strip() for name in rows[0][1]]
        _require_regular(path, header, rows[1:])
        lines, fields = zip(*rows[1:], strict=True)
        return cls(path, pd.DataFrame(list(fields), index=list(lines), columns=header))

    def __len__(self) -> int:
        return len(self.frame)

    def __contains__(self, column: str) -> bool:
        return column in self.frame.columns

    def only(self, column: str, value: int | str | None = None) -> "Measurements":
        """Return the rows with ``value``; raise where it is None and rows differ."""
        known = self._text(column).map(_plain)
        present = sorted(known.unique())
        if value is None and len(present) == 1:
            return self
        wanted = None if value is None else _plain(str(value))
        if wanted not in present:
            missing = "rows of several:" if value is None else f"no row has {value!r}, only"
            has = ", ".join(present)
            raise ProfileError(f"{self.path}: column {column!r}: {missing} {has}; name one of them")
        return Measurements(self.path, self.frame[known == wanted])

    def value(self, column: str) -> str:
        """Return the text of a column in the first row."""
        return str(self._text(column).iloc[0])

    def chosen(self, rows: "pd.Series[bool]") -> "Measurements":
        """Return the rows for which ``rows`` is true."""
        return Measurements(self.path, self.frame[rows])

    def counts(self, column: str, least: int = 0) -> "pd.Series[float]":
        """Return a column of whole numbers of at least ``least``."""
        numbers = self._numbers(column)
        wrong = ~((numbers >= least) & (numbers == np.floor(numbers)))
        self._refuse(column, wrong, f"a whole number of at least {least}")
        return numbers

    def texts(self, column: str) -> "pd.Series[str]":
        """Return a column as text."""
        return self._text(column).str.strip()

    def numbers(self, column: str, what: str = "a number of at least 0") -> "pd.Series[float]":
        """Return a column of numbers of at least 0; ``what`` they are, in an error."""
        numbers = self._numbers(column)
        self._refuse(column, ~(numbers >= 0), what)
        return numbers

    def times_s(self, column: str, unit_s: float = 1e-3) -> "pd.Series[float]":
        """Return a column of times in seconds; it has them in ``unit_s`` (a ms, or a us)."""
        unit = "ms" if unit_s == 1e-3 else "us"
        return self.numbers(column, f"a time in {unit}, at least 0") * unit_s

    def is_blank(self, column: str) -> bool:
        """Return whether no row has a value in this column: the operator was not measured."""
        return bool((self._text(column).str.strip() == "").all())

    def _text(self, column: str) -> "pd.Series[str]":
        columns = self.frame.columns
        others = f"the columns are {', '.join(columns)}"
        require_name(column, columns, f"{self.path}: no column", ProfileError, others)
        return self.frame[column]

    def _numbers(self, column: str) -> "pd.Series[float]":
        numbers = pd.to_numeric(self._text(column), errors="coerce").astype(float)
        return numbers.replace([inf, -inf], np.nan)

    def _refuse(self, column: str, wrong: "pd.Series[bool]", right: str) -> None:
        if wrong.any():
            place = int(wrong.to_numpy().argmax())
            line, text = self.frame.index[place], self.frame[column].iloc[place]
            raise ProfileError(
                f"{self.path}:{line}: column {column!r}: {text!r} is not possible; it must be "
                f"{right}"
            )


def points(times_s: "pd.Series[float]", *axes: "pd.Series[float]") -> tuple[FloatArray, ...]:
    """Return (axes ..., median time) of every distinct place."""
    names = [f"axis {place}" for place in range(len(axes))]
    frame = pd.DataFrame({**dict(zip(names, axes, strict=True)), "s": times_s})
    medians = frame.groupby(names)["s"].median().reset_index()
    return tuple(medians[name].to_numpy(float) for name in [*names, "s"])


def require_unit(where: str, times_s: "FloatArray | pd.Series[float]", unit: str) -> None:
    """Raise ``ProfileError`` for times that no device takes: they are not in ``ms`` or ``us``."""
    least_s, most_s, seconds, shorter, longer = _UNITS[unit]
    shortest_s = float(times_s.min())
    if not least_s <= shortest_s <= most_s:
        raise ProfileError(
            f"{where}: the shortest time is {shortest_s / seconds:.3g} {unit}; times must be in "
            f"{unit}, these look like {longer if shortest_s < least_s else shorter}"
        )


def require_rising(path: Path, column: str, times_s: FloatArray, **axes: FloatArray) -> None:
    """Raise ``ProfileError`` where a time falls by more than ``MOST_FALL`` as an axis grows.

    ``axes`` are the places of the points by the name of their column; along each, all others stay.
    """
    frame = pd.DataFrame({**axes, "s": times_s})
    for axis in axes:
        others = [name for name in axes if name != axis]
        ordered = frame.sort_values(axis, kind="stable")
        along = ordered.groupby(others)["s"] if others else ordered["s"]
        fallen = ordered["s"] < (1 - MOST_FALL) * along.cummax()
        if not fallen.any():
            continue
        low = ordered[fallen].iloc[0]
        line = ordered[(ordered[others] == low[others]).all(axis=1) & (ordered[axis] < low[axis])]
        high = line.loc[line["s"].idxmax()]
        where = "".join(f" ({name} {low[name]:g})" for name in others)
        raise ProfileError(
            f"{path}: column {column!r}: {high['s'] * 1e3:.4g} ms at {axis} {high[axis]:g}, but "
            f"{low['s'] * 1e3:.4g} ms at {axis} {low[axis]:g}{where}; a time may fall by at most "
            f"{MOST_FALL:.0%} where there is more work: measure these rows again, or leave them out"
        )


def _require_regular(path: Path, header: list[str], rows: list[tuple[int, list[str]]]) -> None:
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise ProfileError(f"{path}:1: column {twice!r} is there twice; once would be right")
    for line, row in rows:
        if len(row) != len(header):
            raise ProfileError(f"{path}:{line}: {len(row)} fields; the header has {len(header)}")


def _plain(text: str) -> str:
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text.strip()
