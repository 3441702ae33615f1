"""The step log: one JSON line per step, and one per arrival. It is the calibration data.

The first line is a header (kind ``header``: engine, policies, KV memory, clock zero). Arrivals
(kind ``arrival``) carry all that a scheduler sees of a new sequence, steps (kind ``step``) the
columns of ``StepRecord`` (``drafts`` only where decodes verify drafts), both in the scheduler's
order. A sequence that raised in a step has a row
of its own after it (kind ``failure``). A core that was started again goes on with the log of the
one that died, after a row of kind ``restart``. Times are seconds on the core's clock. So
a simulator can be given exactly what the engine was given.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Listed
from os import SEEK_END
from pathlib import Path
from typing import Any, TypeVar

from servetwin.engine.core.core import CoreClock
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory
from servetwin.policies.sequence import Sequence
from servetwin.policies.step_record import StepRecord
from servetwin.workloads.errors import EngineError

_FLUSH_EVERY_S = 1.0
_LONGEST_HEADER_BYTES = 1 << 20
T = TypeVar("T")
# Of a log, after its file and line number.
Row = tuple[str, dict[str, Any]]
ARRIVAL_FIELDS = ("request_id", "arrival_s", "prompt_tokens", "max_tokens", "block_keys")


class StepLogFile:
    """JSON Lines, buffered; on disk when the engine idles and at least once a second.

    A log whose header has the same clock is that of a core that died; it goes on.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._flushed_s = 0.0
        try:
            steps = _steps_so_far(path, header.get("clock_zero_s"))
            self._file = path.open("w" if steps is None else "a", encoding="utf-8")
        except OSError as error:
            raise EngineError(f"step log {path}: {error.strerror}") from error
        self._first_step = steps or 0
        if steps is None:
            self._write("header", header)
        else:
            self._write("restart", {"process_id": header["process_id"]})
        self.flush()

    def arrival(self, seq: Sequence) -> None:
        """Write the sequence as it arrives."""
        self._write("arrival", _arrival_row(seq))

    def step(self, record: StepRecord) -> None:
        """Write the record."""
        self._write("step", {**record.as_row(), "step": self._first_step + record.step})
        if record.now_s - self._flushed_s >= _FLUSH_EVERY_S:
            self._flushed_s = record.now_s
            self.flush()

    def failure(self, step: int, request_id: str, reason: str) -> None:
        """Write which sequence failed in which step, and why."""
        self._write(
            "failure", {"step": self._first_step + step, "request_id": request_id, "reason": reason}
        )

    def flush(self) -> None:
        """Hand what is buffered to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()

    def _write(self, kind: str, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps({"kind": kind, **row}, separators=(",", ":")) + "\n")


def read_step_log(path: Path) -> tuple[dict[str, Any], list[StepRecord]]:
    """Return the header and the steps of a log, without a last line that was cut off.

    Raises ``EngineError`` when ``path`` is missing or holds something else.
    """
    rows = _rows(path)
    _, header = next(rows, ("", {"kind": "nothing"}))
    if header.pop("kind") != "header":
        raise EngineError(f"{path}:1: not a step log; its first line must be the header")
    return header, _made(rows, "step", StepRecord.of_row)


def read_arrivals(path: Path) -> list[Sequence]:
    """Return the sequences of a log in their order of arrival."""
    return _made(_rows(path), "arrival", _arrived)


def _rows(path: Path) -> Iterator[Row]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise EngineError(f"step log {path}: {error.strerror}") from error
    for number, line in enumerate(lines[:-1], start=1):  # the last has no line end: cut off
        where = f"{path}:{number}"
        yield where, _parse(where, line)


def _parse(where: str, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or "kind" not in row:
        raise EngineError(f"{where}: not a row of a step log")
    return row


def _steps_so_far(path: Path, zero_s: float | None) -> int | None:
    """Return the steps of a log whose clock has this zero; None for any other file.

    A last line that was cut off is taken away.
    """
    if zero_s is None or not path.is_file():
        return None
    with path.open("rb+") as file:
        try:
            header = _parse(str(path), file.readline(_LONGEST_HEADER_BYTES))
        except EngineError:
            return None
        if header.get("clock_zero_s") != zero_s:
            return None
        steps = 0
        for line in file:
            if line.endswith(b"\n"):
                steps += line.startswith(b'{"kind":"step"')
            else:
                file.truncate(file.seek(-len(line), SEEK_END))
    return steps


def _made(rows: Iterator[Row], kind: str, make: Callable[[dict[str, Any]], T]) -> list[T]:
    """Return what is made of the rows of a kind."""
    made = []
    for where, row in rows:
        if row["kind"] == kind:
            try:
                made.append(make(row))
            except KeyError as error:
                raise EngineError(f"{where}: field {error} is missing") from None
    return made


def _arrived(row: Mapping[str, Any]) -> Sequence:
    columns = {name: row[name] for name in ARRIVAL_FIELDS}
    return Sequence(**columns, samples=row.get("samples", 1))


def _arrival_row(seq: Sequence) -> dict[str, Any]:
    row = {name: getattr(seq, name) for name in ARRIVAL_FIELDS}
    return row | {"samples": seq.samples} if seq.samples > 1 else row


def core_facts(
    names: Listed[str], vocab_size: int, policies: PolicyConfig, memory: KVMemory,
    runner: Mapping[str, Any], clock: CoreClock, step_log: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """Return the facts about a core; call it in the core's process. ``runner`` describes the
    executor; ``names`` are the model's, then those of adapters, which requests may give instead.
    """
    model, *adapters = names
    return {
        "model": model, "vocab_size": vocab_size, "adapters": adapters,
        "max_model_len": policies.max_model_len, "kv_tokens": memory.capacity_tokens,
        "policies": policies.as_dict(), "runner": dict(runner),
        "step_log": step_log and str(step_log.resolve()), "process_id": os.getpid(),
        "clock_zero_s": clock.zero_s, "started_at_unix_s": time.time() - clock(),
    }  # fmt: skip
