"""A run, predicted or measured: its requests, its steps, and the folder that keeps them."""

import json
import os
import platform
import sys
import time
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


class RunError(ServetwinError):
    """A run folder cannot be read or written."""


@dataclass(slots=True)
class Run:
    """What happened to every request (``sim.metrics.REQUEST_COLUMNS``) and in every step.

    ``scenario`` is all that is needed to run it again, ``meta`` says where and with what it ran,
    ``extra`` joins the summary (wall time of the simulation, delivered load of a load test).
    """

    kind: RunKind
    requests: pd.DataFrame
    steps: pd.DataFrame
    scenario: dict[str, Any]
    meta: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    records: list[StepRecord] = field(default_factory=list)
    """Every decision of a simulation that was asked to keep them; not written to the folder."""

    def summary(self, slo: SLO | None = None) -> dict[str, Any]:
        """The figures of the run (``sim.metrics.summarize``) and its extras."""
        return {**summarize(self.requests, slo), **self.extra}

    def save(self, folder: Path) -> Path:
        """Write the run folder; ``summary.json`` comes last, so its presence means complete."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.requests.to_parquet(folder / "requests.parquet", index=False)
            self.steps.to_parquet(folder / "steps.parquet", index=False)
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
        kind = meta.pop("kind")
    except (OSError, ValueError, KeyError, yaml.YAMLError) as error:
        raise RunError(f"{folder}: not a readable run folder ({error})") from error
    extra = {name: summary[name] for name in ("simulation", "delivered") if name in summary}
    return Run(kind, requests, steps, scenario, meta, extra)


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
