"""A run, predicted or measured: its requests, its steps, and the folder that keeps them."""

import json
import os
import platform
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import yaml

from policies.step_record import StepRecord
from sim.metrics import SLO, summarize
from workloads.errors import ServetwinError

RunKind = Literal["simulation", "loadtest"]

_EXTRAS = ("simulation", "delivered", "provenance")
PAUSE_COLUMNS = ("row", "preempted_s", "resumed_s")
"""A request (its row in ``requests``) lost its place in the batch, and had it again."""
HANDOVER_COLUMNS = ("row", "prefill_end_s", "transfer_end_s", "decode_start_s")
"""A request's prompt was computed on one replica; its decodes began on another."""


class RunError(ServetwinError):
    """A run folder cannot be read or written."""


def stamps_frame(rows: Iterable[Iterable[float]], columns: tuple[str, ...]) -> pd.DataFrame:
    """Stamps by request row, in ``columns``; what had not happened at the end is undefined."""
    listed = [tuple(row) for row in rows]
    padded = [(*row, *[float("nan")] * (len(columns) - len(row))) for row in listed]
    frame = pd.DataFrame(padded, columns=list(columns), dtype=float)
    return frame.astype({"row": int})


@dataclass(slots=True)
class Run:
    """What happened to every request (``sim.metrics.REQUEST_COLUMNS``) and in every step.

    ``scenario`` is all that is needed to run it again, ``meta`` says where and with what it ran,
    ``extra`` joins the summary (wall time of the simulation, delivered load of a load test).
    ``pauses`` (``PAUSE_COLUMNS``) and ``handovers`` (``HANDOVER_COLUMNS``) are of a simulation.
    """

    kind: RunKind
    requests: pd.DataFrame
    steps: pd.DataFrame
    scenario: dict[str, Any]
    meta: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    records: list[StepRecord] = field(default_factory=list)
    """Every decision of a simulation that was asked to keep them; not written to the folder."""
    pauses: pd.DataFrame = field(default_factory=lambda: stamps_frame((), PAUSE_COLUMNS))
    handovers: pd.DataFrame = field(default_factory=lambda: stamps_frame((), HANDOVER_COLUMNS))

    def summary(self, slo: SLO | None = None) -> dict[str, Any]:
        """The figures of the run (``sim.metrics.summarize``) and its extras."""
        return {**summarize(self.requests, slo), **self.extra}

    def save(self, folder: Path) -> Path:
        """Write the run folder; ``summary.json`` comes last, so its presence means complete."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.requests.to_parquet(folder / "requests.parquet", index=False)
            self.steps.to_parquet(folder / "steps.parquet", index=False)
            _save_if_any(self.pauses, folder / "pauses.parquet")
            _save_if_any(self.handovers, folder / "handovers.parquet")
            (folder / "scenario.yaml").write_text(yaml.safe_dump(self.scenario, sort_keys=False))
            (folder / "meta.json").write_text(
                json.dumps({"kind": self.kind, **self.meta}, indent=1)
            )
            (folder / "summary.json").write_text(json.dumps(self.summary(), indent=1))
        except OSError as error:
            raise RunError(f"{folder}: the run cannot be written ({error.strerror})") from error
        return folder


def load_run(folder: Path) -> Run:
    """Read a run folder back.

    Raises ``RunError`` when the folder or one of its files is missing or damaged.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text())
        summary = json.loads((folder / "summary.json").read_text())
        scenario = yaml.safe_load((folder / "scenario.yaml").read_text())
        requests = pd.read_parquet(folder / "requests.parquet")
        steps = pd.read_parquet(folder / "steps.parquet")
        pauses = _load_if_any(folder / "pauses.parquet", PAUSE_COLUMNS)
        handovers = _load_if_any(folder / "handovers.parquet", HANDOVER_COLUMNS)
        kind = meta.pop("kind")
    except (OSError, ValueError, KeyError, yaml.YAMLError) as error:
        raise RunError(f"{folder}: not a readable run folder ({error})") from error
    extra = {name: summary[name] for name in _EXTRAS if name in summary}
    return Run(kind, requests, steps, scenario, meta, extra, pauses=pauses, handovers=handovers)


def _save_if_any(frame: pd.DataFrame, path: Path) -> None:
    if frame.empty:
        path.unlink(missing_ok=True)
    else:
        frame.to_parquet(path, index=False)


def _load_if_any(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    if not path.exists():
        return stamps_frame((), columns)
    return pd.read_parquet(path, columns=list(columns))


def machine_facts() -> dict[str, Any]:
    """Machine and versions, for ``meta.json`` and profiles."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "servetwin": _own_version(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _own_version() -> str:
    try:
        return version("servetwin")
    except PackageNotFoundError:
        return "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
