"""Stamps in a column: numbers in a unit, ISO 8601, or dates whose day or month comes first.

All rows of a column are alike: seconds since 1970 beside seconds of a run, or a stamp with a time
zone beside one without, cannot be on one clock, and are errors.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import pairwise
from math import isinf
from typing import TypeVar

from servetwin.workloads.fields import MAX_COUNT, MAX_SECONDS
from servetwin.workloads.rows import RowError
from servetwin.workloads.tables.mapping import DATE_ORDERS, UNITS_S
from servetwin.workloads.tables.names import known_words

_MISSING, _NO_ERROR = known_words("missing"), known_words("no error")
_ANSWERED, _FAILED = known_words("answered"), known_words("failed")
_NUMBER = re.compile(r"(?a)[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"(?a)[+-]?\d+,\d+")
_GROUPED = re.compile(r"(?a)[+-]?\d{1,3}(?:[.,]\d{3})+")
_WHOLE = re.compile(r"(?a)([+-]?\d{1,18})(?:[.,](?:0{1,2}|0{4,}))?")
_CODE = re.compile(r"(?a)[1-5]\d\d(?:\.0)?")


def is_missing(cell: str) -> bool:
    """Return whether a cell is empty, or says that there is no value."""
    return not cell or cell.lower() in _MISSING


def has_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number with one comma, as in 0,31."""
    return _DECIMAL_COMMA.fullmatch(cell) is not None


def plain_number(name: str, cell: str, comma: bool) -> str:
    """Return a number with a decimal point; ``comma`` says that the table has decimal commas.

    Raises ``RowError`` also for a cell that could be two numbers.
    """
    if "," in cell:
        if not comma or "." in cell or not _DECIMAL_COMMA.fullmatch(cell):
            reason = "a comma within a number: write it without thousands separators"
            raise RowError(name, reason if _is_number_like(cell) else "not a number", cell)
        return cell.replace(",", ".")
    if comma and "." in cell:
        raise RowError(name, "a point where other rows have decimal commas", cell)
    if not _NUMBER.fullmatch(cell):
        raise RowError(name, "not a number", cell)
    if isinf(float(cell)):
        raise RowError(name, "beyond the largest number", cell)
    return cell


def cell_count(name: str, cell: str, minimum: int) -> int:
    """Return a count; 412.0 is one, and 1.000, which may be 1 or 1000, is none."""
    match = _WHOLE.fullmatch(cell)
    if not match:
        if is_missing(cell):
            raise RowError(name, "missing", cell)
        if _GROUPED.fullmatch(cell):
            raise RowError(name, "a thousands separator? write the count in digits alone", cell)
        raise RowError(name, "not an integer", cell)
    value = int(match[1])
    if value < minimum:
        raise RowError(name, "negative" if value < 0 else f"must be at least {minimum}", value)
    if value > MAX_COUNT:
        raise RowError(name, f"beyond {MAX_COUNT}", value)
    return value


def cell_duration_s(name: str, cell: str, unit_s: float, comma: bool) -> float | None:
    """Return a duration in seconds; None where it is missing. Raises ``RowError``."""
    if is_missing(cell):
        return None
    value = float(plain_number(name, cell, comma)) * unit_s
    if value < 0:
        raise RowError(name, "a negative duration", cell)
    if not value <= MAX_SECONDS:
        raise RowError(name, f"beyond {MAX_SECONDS:.10g} s", cell)
    return value


@lru_cache(maxsize=1024)
def status_of(cell: str) -> bool | None:
    """Return whether a request was answered, by its HTTP code or a word; None where unclear."""
    if _CODE.fullmatch(cell):
        return cell[0] == "2"
    word = cell.lower().replace("-", "_").replace(" ", "_")
    return True if word in _ANSWERED else False if word in _FAILED else None


def error_of(cell: str) -> str | None:
    """Return the error that a cell names; None where it says that there was none."""
    return None if is_missing(cell) or cell.lower() in _NO_ERROR else cell


def _is_number_like(cell: str) -> bool:
    return not set(cell) - set("+-0123456789.,")


_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
_ZONE = r"(?:\s*(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?))?"
_ISO = re.compile(
    rf"(?a)(?P<year>\d{{4}})(?P<mark>[-/])(?P<one>\d\d)(?P=mark)(?P<other>\d\d)"
    rf"(?:[T ]\s*{_CLOCK})?(?P<half>){_ZONE}",
    re.IGNORECASE,
)
_DATE = re.compile(
    rf"(?a)(?P<one>\d{{1,2}})(?P<mark>[-/.])(?P<other>\d{{1,2}})(?P=mark)(?P<year>\d{{4}})"
    rf",?[T ]\s*{_CLOCK}(?:\s*(?P<half>[AP]M))?{_ZONE}",
    re.IGNORECASE,
)
# Digits of the whole seconds since 1970, from 2001 to 2286.
_DIGITS_OF_SECONDS = 10
_DIGITS = {unit: _DIGITS_OF_SECONDS + 3 * place for place, unit in enumerate(UNITS_S)}
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def epoch_unit(cell: str) -> str | None:
    """Return the unit of a number that counts since 1970; None for any other number."""
    whole = cell.partition(".")[0].partition(",")[0]
    if not (whole.isdigit() and whole.isascii() and whole[0] != "0"):
        return None
    return next((unit for unit, digits in _DIGITS.items() if len(whole) == digits), None)


def is_iso(cell: str) -> bool:
    """Return whether a cell begins with the year, and has a time of day."""
    match = _ISO.fullmatch(cell)
    return match is not None and match["hour"] is not None


def date_orders(cell: str) -> tuple[str, ...]:
    """Return the orders in which a date that does not begin with the year can be read."""
    match = _DATE.fullmatch(cell)
    if not match:
        return ()
    first, second = int(match["one"]), int(match["other"])
    if match["mark"] == ".":
        return ("dmy",)
    return tuple(
        order
        for order, (day, month) in zip(DATE_ORDERS, [(first, second), (second, first)], strict=True)
        if 1 <= month <= 12 and 1 <= day <= 31
    )


class Moments:
    """Reads the stamps of one column, in nanoseconds, row after row.

    ``form`` is a unit, an order of dates, or empty where the column says it by itself. ``comma``
    says that numbers have decimal commas.
    """

    def __init__(self, name: str, quantity: str, form: str, comma: bool) -> None:
        self._name, self._quantity, self._form, self._comma = name, quantity, form, comma
        self._kind: str | None = None

    def ns(self, cell: str) -> int | None:
        """Return the stamp in a cell; None where it is missing. Raises ``RowError``."""
        if is_missing(cell):
            return None
        match = _ISO.fullmatch(cell) or _DATE.fullmatch(cell)
        return self._number_ns(cell) if match is None else self._moment_ns(cell, match)

    def _moment_ns(self, cell: str, match: re.Match[str]) -> int:
        if match["hour"] is None:
            raise RowError(self._name, "a date without a time of day", cell)
        order = "mdy" if match.re is _ISO else self._order(cell, match["mark"])
        self._require_kind("zone" if match["zone"] else "no zone", cell)
        hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
        if match["half"]:
            noon = 12 if match["half"].lower() == "pm" else 0
            hour = hour % 12 + noon if 1 <= hour <= 12 else 24  # no such time
        if hour > 23 or minute > 59 or second > 59:
            raise RowError(self._name, "no such time", cell)
        minutes = (self._day(cell, match, order) * 24 + hour) * 60 + minute
        total_s = minutes * 60 + second - _zone_s(match["zone"])
        return total_s * 10**9 + int((match["fraction"] or "").ljust(9, "0"))

    def _order(self, cell: str, mark: str) -> str:
        if mark == ".":
            return "dmy"
        if self._form not in DATE_ORDERS:
            raise RowError(
                self._name, f"day or month first? map {self._either(*DATE_ORDERS)}", cell
            )
        return self._form

    def _day(self, cell: str, match: re.Match[str], order: str) -> int:
        """Return the days since 1970."""
        month, day = ("one", "other") if order == "mdy" else ("other", "one")
        try:
            begun = date(int(match["year"]), int(match[month]), int(match[day]))
        except ValueError:
            raise RowError(self._name, "no such day", cell) from None
        return begun.toordinal() - _EPOCH_DAY

    def _number_ns(self, cell: str) -> int:
        try:
            plain = plain_number(self._name, cell, self._comma)
        except RowError as error:
            reason = error.reason if error.reason != "not a number" else _WANTED
            raise RowError(self._name, reason, cell) from None
        since_1970 = epoch_unit(plain)
        unit = self._form if self._form in UNITS_S else since_1970
        if unit is None:
            raise RowError(self._name, f"in which unit? map {self._either('s', 'ms')}", cell)
        self._require_kind(f"{unit} since 1970" if since_1970 == unit else unit, cell)
        return _scaled_ns(self._name, plain, unit)

    def _either(self, one: str, other: str) -> str:
        return f"{self._quantity}_{one} or {self._quantity}_{other} to it"

    def _require_kind(self, kind: str, cell: str) -> None:
        if self._kind is None:
            self._kind = kind
        elif self._kind != kind:
            reason = f"{_KINDS.get(kind, kind)} where the rows before have "
            reason += _KINDS.get(self._kind, self._kind)
            raise RowError(self._name, reason, cell)


_KINDS = {"zone": "a time zone", "no zone": "no time zone"}
_WANTED = "no time: wants a number, or one such as 2026-11-20 09:00:00.310"
_MOST_S = 10**11


def _zone_s(zone: str | None) -> int:
    if not zone or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (1 if zone[0] == "+" else -1) * (int(digits[:2]) * 60 + int(digits[2:])) * 60


def _scaled_ns(name: str, plain: str, unit: str) -> int:
    """Return a number of a unit in whole nanoseconds, exactly as it is written."""
    if plain[0] == "-":
        raise RowError(name, "negative", plain)
    value_s = Decimal(plain).scaleb(-3 * list(UNITS_S).index(unit))
    if value_s > _MOST_S:
        raise RowError(name, f"beyond {_MOST_S:,} s", plain)
    return int(value_s.scaleb(9))


_FEWEST_OF_A_COUNTER = 3
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Content:
    """The cells of one column that have a value; ``comma`` as in ``Table``.

    A column is of a kind where more than half of its cells are: the others are bad rows.
    """

    cells: Sequence[str]
    comma: bool

    @classmethod
    def of(cls, cells: Sequence[str], comma: bool) -> "Content":
        """Return the content of a column."""
        return cls([cell for cell in cells if not is_missing(cell)], comma)

    @cached_property
    def counts(self) -> list[int]:
        """The cells that are whole numbers from 0 on."""
        return self._parsed(lambda cell: cell_count("", cell, 0))

    @cached_property
    def numbers(self) -> list[float]:
        """The cells that are numbers."""
        return self._parsed(lambda cell: float(plain_number("", cell, self.comma)))

    def _parsed(self, parse: Callable[[str], Number]) -> list[Number]:
        values = []
        for cell in self.cells:
            with suppress(RowError):
                values.append(parse(cell))
        return values

    @property
    def are_counts(self) -> bool:
        """Whether these may be counts of tokens: no running number, and no codes of HTTP."""
        return self.are_whole and not (self._is_counter or self.are_codes)

    @property
    def are_whole(self) -> bool:
        """Whether these are whole numbers from 0 on."""
        return self._most(len(self.counts))

    @property
    def are_numbers(self) -> bool:
        """Whether these are numbers, and no stamps since 1970."""
        return self._most(len(self.numbers)) and self.epoch is None

    @property
    def are_texts(self) -> bool:
        """Whether these are words rather than numbers or stamps."""
        return bool(self.cells) and not (self._most(len(self.numbers)) or self.are_stamps)

    @property
    def are_stamps(self) -> bool:
        """Whether these name a moment by themselves, if perhaps not the order of day and month."""
        return self.is_iso or self.is_dated or self.epoch is not None

    @cached_property
    def is_iso(self) -> bool:
        """Whether these are stamps that begin with the year."""
        return self._most(sum(map(is_iso, self.cells)))

    @cached_property
    def is_dated(self) -> bool:
        """Whether these are stamps that begin with the day or the month."""
        return self._most(sum(bool(date_orders(cell)) for cell in self.cells))

    @cached_property
    def orders(self) -> tuple[str, ...]:
        """The orders in which all dates can be read."""
        by_cell = [set(orders) for cell in self.cells if (orders := date_orders(cell))]
        common = set.intersection(*by_cell) if by_cell else set()
        return tuple(sorted(common))

    @cached_property
    def epoch(self) -> str | None:
        """The unit of numbers that all count since 1970."""
        units = {epoch_unit(cell) for cell in self.cells}
        return units.pop() if len(units) == 1 else None

    @property
    def unclear_states(self) -> list[str]:
        """Cells that say neither that a request was answered nor that it failed."""
        return [cell for cell in dict.fromkeys(self.cells) if status_of(cell) is None]

    def _most(self, count: int) -> bool:
        return count > len(self.cells) / 2

    @property
    def _is_counter(self) -> bool:
        counts = self.counts
        return len(counts) >= _FEWEST_OF_A_COUNTER and all(b == a + 1 for a, b in pairwise(counts))

    @property
    def are_codes(self) -> bool:
        """Whether these are codes of HTTP, with successes among them."""
        return 200 in self.counts and all(status_of(cell) is not None for cell in self.cells)
