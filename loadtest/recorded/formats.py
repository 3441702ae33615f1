"""The formats of recorded runs: where the fields of a request stand in each (``formats.json``).

A path in that file names nested keys. Of the paths of a field, the first one with a value counts.
Stamps are seconds, unless ``per_s`` has the parts of a second that they count, or the value stands
beside its unit (``{"value": 3, "unit": "ms"}``). A format is recognised by the keys in one of its
``marks``. ``rows`` names the function of ``loadtest.recorded.nested`` that takes the requests out
of a file that nests them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from servetwin.loadtest.recorded import nested
from servetwin.loadtest.recorded.fields import UNITS_S, count, has, moment_s, numbers, within
from servetwin.loadtest.recorded.nested import Rows
from servetwin.loadtest.recorded.recording import Record, RecordedRequest, Recording
from servetwin.sim.records.run import Run
from servetwin.workloads.fields import integer, integer_list
from servetwin.workloads.program.package import shipped_json
from servetwin.workloads.rows import RowError


@dataclass(frozen=True, slots=True)
class Format:
    """A file format of recorded runs; ``rows`` returns a record for each request of a file."""

    tool: str
    marks: Sequence[Sequence[str]]
    fields: Mapping[str, Sequence[str]]
    per_s: Mapping[str, float] = field(default_factory=dict)
    units: bool = False
    """Whether every measured value stands beside its unit."""
    notes: Sequence[str] = ()
    rows: Callable[[Sequence[Record]], Rows] = Rows

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """Return whether the first record of a file is in this format."""
        return any(all(has(record, path) for path in mark) for mark in self.marks)

    def read(self, records: Sequence[Record]) -> Recording:
        """Return the requests in file order, failed ones included."""
        rows = self.rows(records)
        requests = [self._request(record) for record in rows.records]
        notes = (*self.notes, *rows.notes)
        return Recording(rows.tool or self.tool, requests, notes, rows.no_arrivals)

    def _request(self, record: Record) -> RecordedRequest:
        try:
            return _request(_Fields(self, record.fields), record.place)
        except RowError as error:
            raise error.inside(record.place) from None


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of one record, by the names in ``formats.json``."""

    format: Format
    record: Mapping[str, Any]

    def value(self, name: str) -> Any:
        """Return the value of a field; None where it is missing."""
        return self._found(name)[1]

    def count(self, name: str) -> int:
        """Return a whole number from 0 on. Raises ``RowError`` where the field is missing."""
        path, value, _ = self._measured(name)
        return count(path, value)

    def known_count(self, name: str) -> int | None:
        """Return the same; None where the field is missing."""
        return None if self.value(name) is None else self.count(name)

    def seconds(self, name: str) -> float | None:
        """Return a time in seconds; None where the field is missing."""
        moment = moment_s(*self._measured(name))
        return None if moment is None else moment / self.format.per_s.get(name, 1.0)

    def list_s(self, name: str) -> tuple[float, ...] | None:
        """Return a list of times in seconds; None where the field is missing."""
        path, values, unit_s = self._measured(name)
        return None if values is None else tuple(unit_s * one for one in numbers(path, values))

    def _measured(self, name: str) -> tuple[str, Any, float]:
        """Return the path of a field, its value, and the seconds of its unit."""
        path, value = self._found(name)
        if not isinstance(value, Mapping):
            if self.format.units and value is not None and name not in self.format.per_s:
                raise RowError(path, "without a unit", value)
            return path, value, 1.0
        unit = value.get("unit")
        if unit not in (*UNITS_S, "tokens"):
            raise RowError(f"{path}.unit", "must be ns, us, ms or s", unit)
        return path, value.get("value"), UNITS_S.get(unit, 1.0)

    def _found(self, name: str) -> tuple[str, Any]:
        """Return the path of a field and its value; None where the format or record lacks it."""
        for path in self.format.fields.get(name, ()):
            if (value := within(self.record, path)) is not None:
                return path.replace("/", "."), value
        return name, None


def _request(fields: _Fields, place: str) -> RecordedRequest:
    name = fields.value("request_id")
    name = place if name in (None, "") else str(name)
    arrival_s = fields.seconds("arrival_s")
    if error := fields.value("error"):
        prompt_tokens = fields.known_count("prompt_tokens") or 0
        return RecordedRequest(name, prompt_tokens, 0, arrival_s, error=_reason(error))
    chunk_s = fields.list_s("chunk_s") or ()
    first_s = _after(arrival_s, fields.seconds("ttft_s"), fields.seconds("first_token_s"))
    gaps_s = fields.list_s("gaps_s")
    if first_s is not None and gaps_s is not None:
        chunk_s = tuple(accumulate(gaps_s, initial=first_s))
    last_s = chunk_s[-1] if chunk_s else fields.seconds("last_token_s")
    ids = fields.value("prefix_block_ids") or []
    return RecordedRequest(
        name,
        fields.count("prompt_tokens"),
        fields.count("output_tokens"),
        arrival_s,
        chunk_s[0] if chunk_s and first_s is None else first_s,
        _after(arrival_s, fields.seconds("e2e_s"), last_s),
        chunk_s,
        _queue_s(fields, arrival_s),
        fields.known_count("cached_tokens"),
        integer_list("prefix_block_ids", ids),
        integer(1)("block_tokens", fields.value("block_tokens")) if ids else None,
    )


def _after(start_s: float | None, took_s: float | None, else_s: float | None) -> float | None:
    """Return when a duration after the start is over; without a duration ``else_s``."""
    return else_s if took_s is None else (start_s or 0.0) + took_s


def _queue_s(fields: _Fields, arrival_s: float | None) -> float | None:
    scheduled_s = fields.seconds("scheduled_s")
    if scheduled_s is None or arrival_s is None:
        return fields.seconds("queue_s")
    return scheduled_s - arrival_s


def _reason(error: Any) -> str:
    """Return the kind of an error: an object has it under one of a few names."""
    names = ("type", "error_type")
    kinds = [error[name] for name in names if error.get(name)] if isinstance(error, dict) else []
    return str(kinds[0] if kinds else error)


# In the order in which they are shown the first record of a file.
FORMATS = {
    name: Format(**{**described, "rows": getattr(nested, described.get("rows", "Rows"))})
    for name, described in shipped_json("loadtest/recorded/formats.json").items()
}

ENGINE_STAMPS: str = FORMATS["engine_stamps"].tool


def is_inside_engine(run: Run) -> bool:
    """Return whether the stamps of a run are inside the engine, without any HTTP."""
    return run.scenario.get("recorded_by") == ENGINE_STAMPS
