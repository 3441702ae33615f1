"""A trace: requests in the order of their arrival, and where they came from.

Requests are held as columns, where a generator or a reader made them so; each is made when it is
read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from servetwin.workloads.request import Request, Unfrozen

if TYPE_CHECKING:
    from servetwin.workloads.graphs.lane_rules import LaneRules

AnyArray: TypeAlias = npt.NDArray[Any]
DEFAULTS = {field.name: field.default for field in fields(Request)}
# The fields that are numbers in every request; the columns of all others hold objects.
_NUMBERS: dict[str, Any] = {f.name: f.type for f in fields(Request) if f.type in (int, float)}
# Requests that are made at a time.
_PART = 4096


class Requests(Sequence[Request]):
    """Requests by the columns of their fields; a field without a column has its default."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        size = len(columns["arrival_s"])
        self.columns = {name: _array(name, columns[name], size) for name in columns}

    @classmethod
    def of_records(cls, records: Sequence[Mapping[str, Any]]) -> "Requests":
        """Build it from the fields of each request, already checked."""
        names = {"arrival_s"}.union(*records)
        return cls({n: [record.get(n, DEFAULTS[n]) for record in records] for n in names})

    def __len__(self) -> int:
        return len(self.columns["arrival_s"])

    @overload
    def __getitem__(self, place: int) -> Request: ...
    @overload
    def __getitem__(self, place: slice | AnyArray) -> "Requests": ...
    def __getitem__(self, place: int | slice | AnyArray) -> "Request | Requests":
        if isinstance(place, slice | np.ndarray):
            return Requests({name: values[place] for name, values in self.columns.items()})
        row = range(len(self))[place]
        return next(iter(self[row : row + 1]))

    def __iter__(self) -> Iterator[Request]:
        names = [*DEFAULTS][: 1 + max(map([*DEFAULTS].index, self.columns))]
        for first in range(0, len(self), _PART):
            part = {n: v[first : first + _PART].tolist() for n, v in self.columns.items()}
            for request in map(Unfrozen, *(part.get(n, repeat(DEFAULTS[n])) for n in names)):
                request.__class__ = Request
                yield request

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def with_columns(self, **columns: Iterable[Any]) -> "Requests":
        """Return the requests with other values, already checked, of the fields that are named."""
        new = {name: _array(name, columns[name], len(self)) for name in columns}
        return Requests({**self.columns, **new})


def column(requests: Sequence[Request], name: str) -> AnyArray:
    """Return the values of a field of requests, numbers or objects; not to be changed."""
    if isinstance(requests, Requests):
        values: Any = requests.columns.get(name, repeat(DEFAULTS[name]))
    else:
        values = map(attrgetter(name), requests)
    return _array(name, values, len(requests))


def as_columns(requests: Sequence[Request]) -> Requests:
    """Return requests as columns, without those that have nothing but defaults."""
    if isinstance(requests, Requests):
        return requests
    columns = {name: column(requests, name) for name in DEFAULTS}
    told = {n for n, v in columns.items() if any(each is not DEFAULTS[n] for each in v.tolist())}
    return Requests({name: columns[name] for name in {"arrival_s", *told}})


def _array(name: str, values: Any, size: int) -> AnyArray:
    """Return the values of a field as an array."""
    if isinstance(values, np.ndarray):
        return values
    return np.fromiter(values, _NUMBERS.get(name, object), size)


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests sorted by arrival (ties keep file order), with the name and notes of their source.

    ``clock_s`` is the resolution of the source's clock where it is coarse enough to make ties
    (Mooncake: 3 s). ``notes`` say what was done to the rows, for the reports. Without ``timed`` the
    source has no times: all requests arrive at 0. One that was ``stopped`` is the beginning of what
    the source has. With ``lanes`` these replay its tasks, and arrivals are only an order.
    """

    requests: Sequence[Request]
    source: str
    clock_s: float | None = None
    notes: tuple[str, ...] = field(default=())
    timed: bool = True
    stopped: bool = field(default=False, compare=False)
    lanes: "LaneRules | None" = None

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    def column(self, name: str) -> AnyArray:
        """Return the values of a field of the requests, numbers or objects; not to be changed."""
        return column(self.requests, name)

    @property
    def total_tokens(self) -> AnyArray:
        """Prompt and output of each request together."""
        return self.column("prompt_tokens") + self.column("output_tokens")

    @property
    def longest_tokens(self) -> int:
        """The longest context that a request reaches; 0 without requests."""
        return int(self.total_tokens.max(initial=0))

    @property
    def has_prefix_ids(self) -> bool:
        """Whether some request names the blocks of its prompt."""
        return any(self.column("prefix_block_ids"))

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last arrival."""
        if not self.requests:
            return 0.0
        return self.requests[-1].arrival_s - self.requests[0].arrival_s

    @property
    def rate_per_s(self) -> float:
        """Mean arrival rate, (n - 1) / span; 0 where the span is 0, and of lanes, which wait."""
        has_rate = self.span_s > 0 and self.lanes is None
        return (len(self.requests) - 1) / self.span_s if has_rate else 0.0

    def replaced(self, requests: Iterable[Request], *notes: str) -> "Trace":
        """Return the trace with other requests, and with notes that give the reason."""
        listed = requests if isinstance(requests, Requests) else tuple(requests)
        return replace(self, requests=listed, notes=(*self.notes, *notes))

    def changed(self, note: str, **columns: Iterable[Any]) -> "Trace":
        """Return the trace with other values of some fields, checked already, and a note."""
        return self.replaced(as_columns(self.requests).with_columns(**columns), note)
