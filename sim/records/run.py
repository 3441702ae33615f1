"""A run, predicted or measured: its requests, its steps, and the folder that keeps them."""

import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from servetwin.policies.step_record import StepRecord
from servetwin.sim.records.columns import Columns, Frame, columns_of, stamps_of
from servetwin.sim.records.metrics import MEANINGS, REQUEST_COLUMNS, SLO, summarize
from servetwin.sim.records.tasks import task_figures
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.files import Drafts, mapping_in
from servetwin.workloads.program.package import own_version

# Written last, and only if all other files of its folder are: it marks a complete run.
SUMMARY = "summary.json"
# The file of a load test until its run is saved (``loadtest.run.journal``).
JOURNAL = "journal.jsonl"

MAPPINGS = ("meta.json", SUMMARY, "scenario.yaml")
SCENARIO_KINDS = {
    **dict.fromkeys(("policies", "cluster", "endpoint", "options"), dict),
    **{"notes": list, "trace": str},
}
# What reports read of a scenario without building it again.
POLICY_KINDS = {
    **dict.fromkeys(("batching", "kv"), str),
    **dict.fromkeys(("max_seqs", "token_budget", "kv_tokens"), int),
}
# The largest figure of a request or a step, such as pairs of positions.
MOST = 1e18
_TEXTS = {"request_id", "status", "error"}
# The steps of the engine in a load test.
RECORDS = "engine-steps.jsonl"

# Paths in the folder and contents, the most valuable first; None removes the file.
Files = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A file that could not be written, its size, and the reason."""

    name: str
    size_bytes: int
    reason: str


def within(subfolder: str, files: Files) -> Files:
    """Return ``files`` one folder deeper."""
    return ((f"{subfolder}/{name}", data) for name, data in files)


def write_files(folder: Path, files: Files) -> list[Unwritten]:
    """Write all files into ``folder``, created if missing, or none; return what was not written."""
    unwritten, removed = list[Unwritten](), list[Path]()
    with Drafts() as drafts:
        for name, data in files:
            if data is None:
                removed.append(folder / name)
                continue
            try:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                drafts.of(folder / name).write_bytes(data)
            except OSError as error:
                unwritten.append(Unwritten(name, len(data), error.strerror or str(error)))
        if unwritten:
            drafts.drop()
        for path in () if unwritten else removed:
            with suppress(OSError):  # If it cannot be removed, nothing else can be placed either.
                path.unlink()
    return unwritten


def write_elsewhere(files: Files) -> tuple[Path | None, list[Unwritten]]:
    """Write what fits into a new folder of the temporary directory.

    Return the folder (None if nothing could be written) and what could not be written.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="servetwin-run-"))
    except OSError:
        return None, []
    unwritten: list[Unwritten] = []
    for name, data in files:
        if Path(name).name != SUMMARY or not _lacks_any(Path(name).parent, unwritten):
            unwritten += write_files(folder, [(name, data)])
    if any(path.is_file() for path in folder.rglob("*")):
        return folder, unwritten
    shutil.rmtree(folder)
    return None, unwritten


def _lacks_any(folder: Path, unwritten: Iterable[Unwritten]) -> bool:
    return any(Path(file.name).parent == folder for file in unwritten)


def requests_csv(requests: Frame) -> bytes:
    """Return the bytes of ``requests.csv``."""
    lists = [str(name) for name in requests if requests[name].map(_is_list).any()]
    cells = {name: requests[name].map(_as_json) for name in lists}
    return requests.assign(**cells).to_csv(index=False).encode()


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _as_json(value: object) -> str:
    return json.dumps(np.asarray(value).tolist()) if _is_list(value) else ""


RunKind = Literal["simulation", "loadtest"]

_EXTRAS = ("simulation", "delivered", "prompt_cache", "provenance", "intervals", "lanes", "fleet")
PAUSE_MEANINGS = MEANINGS["pauses"]
# Columns of ``pauses.parquet``, one row per preemption.
PAUSE_COLUMNS = tuple(PAUSE_MEANINGS)
HANDOVER_MEANINGS = MEANINGS["handovers"]
# Columns of ``handovers.parquet``, one row per request that moved to another replica.
HANDOVER_COLUMNS = tuple(HANDOVER_MEANINGS)


class RunError(ServetwinError):
    """A run folder cannot be read or written."""


class NotWritten(RunError):
    """A result cannot be written; ``exit_code`` is 1, since the input was right."""

    exit_code = 1


class NotSaved(NotWritten):
    """Files of a run could not be written; ``instead`` is a folder that has them, or None.

    The ``missing`` files could not be written to that folder either; without any it is ``whole``.
    """

    def __init__(
        self,
        folder: Path,
        unwritten: Sequence[Unwritten],
        instead: Path | None,
        missing: Sequence[Unwritten],
    ) -> None:
        self.instead = instead
        self.whole = instead is not None and not missing
        first, *others = unwritten
        also = f", nor could {', '.join(file.name for file in others)}" if others else ""
        super().__init__(
            f"{folder / first.name}: its {first.size_bytes} bytes could not be written "
            f"({first.reason}){also}; {_where(instead, missing)}"
        )


def _where(instead: Path | None, missing: Sequence[Unwritten]) -> str:
    if instead is None:
        return f"nor could anything be written to {tempfile.gettempdir()}"
    if missing:
        return f"{instead} has the run without {', '.join(file.name for file in missing)}"
    return f"{instead} has the whole run"


def save_files(folder: Path, files: Callable[[], Files]) -> None:
    """Write ``files`` into ``folder``.

    Raises ``NotSaved`` if one cannot be written; all are then in the temporary directory.
    """
    if unwritten := write_files(folder, files()):
        raise NotSaved(folder, unwritten, *write_elsewhere(files()))


@dataclass
class Run:
    """What happened to every request (``sim.records.metrics.REQUEST_COLUMNS``) and in every step.

    Its tables may be given as columns: each is a frame from when it is first read.
    ``scenario`` is all that is needed to run it again, ``meta`` describes the machine and versions,
    ``extra`` joins the summary (wall time of the simulation, delivered load of a load test). Only
    simulations have ``pauses`` (``PAUSE_COLUMNS``) and ``handovers`` (``HANDOVER_COLUMNS``).
    """

    kind: RunKind
    requests: Frame
    steps: Frame
    scenario: dict[str, Any]
    meta: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    records: list[StepRecord] = field(default_factory=list)
    """Every step of a simulation with ``keep_records``, which its folder does not hold, or of the
    engine in a load test, on its clock, where the engine's step log was read."""
    as_csv: bool = False
    """Whether the folder also has the requests as CSV."""
    pauses: Frame = field(default_factory=lambda: stamps_of((), PAUSE_COLUMNS))
    handovers: Frame = field(default_factory=lambda: stamps_of((), HANDOVER_COLUMNS))

    def table(self, name: str) -> Columns:
        """Return ``requests`` or ``steps`` as columns; this makes no frame."""
        return columns_of(vars(self)[name])

    def summary(self, slo: SLO | None = None) -> dict[str, Any]:
        """Return the figures of the run (``sim.records.metrics.summarize``) and ``extra``."""
        requests = vars(self)["requests"]
        return {**summarize(requests, slo), **task_figures(requests), **self.extra}

    def save(self, folder: Path) -> Path:
        """Write the run folder; ``summary.json`` comes last, so its presence means complete.

        The journal of a load test goes then: the run has all that is in it.

        Raises ``NotSaved`` if a file cannot be written: the others are then in ``folder``, and all
        in the temporary directory.
        """
        try:
            save_files(folder, self.files)
        except NotSaved as error:
            if error.whole:
                _remove_journal(folder)
            raise
        _remove_journal(folder)
        return folder

    def files(self) -> Files:
        """Yield the files of the run folder, the summary last."""
        yield SUMMARY, None  # An old summary would say that the new files are complete.
        yield "requests.parquet", self.requests.to_parquet(index=False)
        yield "requests.csv", requests_csv(self.requests) if self.as_csv else None
        yield "meta.json", json.dumps({"kind": self.kind, **self.meta}, indent=1).encode()
        yield "scenario.yaml", yaml.safe_dump(self.scenario, sort_keys=False).encode()
        yield "steps.parquet", self.steps.to_parquet(index=False)
        yield RECORDS, self._logged_steps()
        yield "pauses.parquet", _bytes_if_any(self.pauses)
        yield "handovers.parquet", _bytes_if_any(self.handovers)
        yield SUMMARY, json.dumps(self.summary(), indent=1).encode()

    def _logged_steps(self) -> bytes | None:
        if self.kind != "loadtest" or not self.records:
            return None
        return "".join(json.dumps(record.as_row()) + "\n" for record in self.records).encode()


def _frame_when_read(name: str) -> property:
    """Return an attribute of runs that makes a frame of the columns it was given."""

    def frame(run: Run) -> Any:
        table = vars(run)[name]
        if isinstance(table, dict):
            import pandas as pd

            table = vars(run)[name] = pd.DataFrame(table)
        return table

    return property(frame, lambda run, table: vars(run).update({name: table}))


for _name in ("requests", "steps", "pauses", "handovers"):
    setattr(Run, _name, _frame_when_read(_name))


def require_saved(folder: Path) -> None:
    """Raise ``RunError`` where a folder has the journal of a load test instead of its run."""
    if (folder / JOURNAL).exists() and not (folder / SUMMARY).exists():
        raise RunError(
            f"{folder}: a load test that was killed, or still runs; servetwin report {folder} "
            "recovers the requests that had ended"
        )


def _remove_journal(folder: Path) -> None:
    with suppress(OSError):
        (folder / JOURNAL).unlink(missing_ok=True)


def load_run(folder: Path) -> Run:
    """Read a run folder back.

    Raises ``RunError`` when the folder or one of its files is missing or damaged.
    """
    require_saved(folder)
    try:
        meta, summary, scenario = (mapping_in(folder / name) for name in MAPPINGS)
        _require_kinds(scenario, SCENARIO_KINDS)
        _require_kinds(scenario.get("policies", {}), POLICY_KINDS)
        requests = _checked_frame(folder / "requests.parquet", REQUEST_COLUMNS)
        _require_order(requests)
        steps = _checked_frame(folder / "steps.parquet", MEANINGS["steps"], may_be_empty=True)
        pauses = _load_if_any(folder / "pauses.parquet", PAUSE_COLUMNS)
        handovers = _load_if_any(folder / "handovers.parquet", HANDOVER_COLUMNS)
        kind = meta.pop("kind")
        records = _load_records(folder / RECORDS)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{folder}: not a readable run folder ({reason})") from error
    extra = {name: summary[name] for name in _EXTRAS if name in summary}
    parts = (requests, steps, scenario, meta, extra, records)
    return Run(kind, *parts, pauses=pauses, handovers=handovers)


def _require_kinds(values: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    for name, kind in kinds.items():
        if not isinstance(values.get(name, kind()), kind):
            raise ValueError(f"scenario.yaml: {name}: {values[name]!r:.60} is no {kind.__name__}")


def _require_order(requests: Frame) -> None:
    """Raise ValueError for a request that has its last token before its first."""
    for row in np.flatnonzero(requests["last_token_s"] < requests["first_token_s"])[:1]:
        raise ValueError(f"requests.parquet: row {row}: last_token_s is before first_token_s")


def _checked_frame(path: Path, columns: Iterable[str], may_be_empty: bool = False) -> Frame:
    """Read a frame. Raises ValueError where a column lacks, or has text in the place of numbers."""
    import pandas as pd

    frame = pd.read_parquet(path)
    if may_be_empty and frame.empty:
        return frame
    for name in columns:
        if name not in frame:
            raise ValueError(f"{path.name}: no column {name!r}; another version wrote it")
        if name not in _TEXTS and not pd.api.types.is_numeric_dtype(frame[name]):
            raise ValueError(f"{path.name}: column {name!r} has {frame[name].dtype} values")
        if name not in _TEXTS and (frame[name].abs() > MOST).any():
            raise ValueError(f"{path.name}: column {name!r} has a value beyond {MOST:g}")
        if not name.endswith("_s") and name != "error" and frame[name].isna().any():
            raise ValueError(f"{path.name}: column {name!r} has rows without a value")
    return frame


def _load_records(path: Path) -> list[StepRecord]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [StepRecord.of_row(json.loads(line)) for line in lines]


def _bytes_if_any(frame: Frame) -> bytes | None:
    return None if frame.empty else frame.to_parquet(index=False)


def _load_if_any(path: Path, columns: tuple[str, ...]) -> Any:
    if not path.exists():
        return stamps_of((), columns)
    import pandas as pd

    return pd.read_parquet(path, columns=list(columns))


def machine_facts() -> dict[str, Any]:
    """Return machine and versions, for ``meta.json`` and profiles."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "servetwin": own_version(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
