"""Trials: predictions compared with load tests, of this dashboard's folder and a bundled one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from app.html.tables import metric_label
from app.text.metric_labels import METRICS
from app.text.report_folders import Trial, find_runs
from loadtest.report.comparison import MetricComparison, Outcome
from workloads.errors import ServetwinError

EXAMPLE = Path(__file__).parent / "example"
"""Written by ``servetwin verify`` on the bundled engine (the bundled sample, two load tests)."""


VERDICTS: dict[Outcome | None, str] = {
    "holds": "✓ holds",
    "refuted": "✗ refuted",
    "cannot tell": "? cannot tell",
    None: "not judged",
}


@dataclass(frozen=True, slots=True)
class Trials:
    """Trials by name; ``problems`` say which folders could not be read, and why."""

    found: dict[str, Trial]
    problems: tuple[str, ...] = ()


def find_trials(root: Path) -> Trials:
    """Return the trials among the runs under ``root``, then the bundled one."""
    problems: list[str] = []
    own = _trials(_readable(root, problems))
    example = _trials(_folders(EXAMPLE))
    found = {_name(trial): trial for trial in [*own, *example]}
    return Trials(found, tuple(problems))


def profile_of(root: Path, name: str) -> Path | None:
    """Return the profile that a verification wrote beside the runs of a trial, or None."""
    folders = [base / part for base in (root, EXAMPLE) for part in (name, Path(name).parent)]
    found = [path for folder in folders if (path := folder / "profile.json").is_file()]
    return found[0] if found else None


def when_and_where(trial: Trial) -> str:
    """Return date and machine of the load tests, as far as they are kept."""
    said = []
    for named in trial.measured:
        meta = named.run.meta
        machine = f"{meta.get('processor', 'unknown machine')}, {meta.get('cores', '?')} cores"
        said.append(f"{meta.get('date', 'at an unknown time')} on {machine}")
    return "; ".join(said)


def requests_of(trial: Trial) -> pd.DataFrame:
    """Return the requests of all runs of a trial; ``run`` names the run."""
    frames = [
        named.run.requests.drop(columns="chunk_s", errors="ignore").assign(run=named.name)
        for named in (trial.predicted, *trial.measured)
    ]
    return pd.concat(frames, ignore_index=True)


def error_rows(metrics: Sequence[MetricComparison]) -> pd.DataFrame:
    """Return the rows that ``errors_with_intervals`` draws, of measured metrics."""
    rows = [_error_row(row) for row in metrics if row.predicted and row.measured]
    columns = ["metric", "error", "low", "high", "allowed"]
    return pd.DataFrame(rows, columns=columns)


def verdict_table(metrics: Sequence[MetricComparison]) -> pd.DataFrame:
    """Return predicted, measured, error, its interval and verdict of each metric, in its unit."""
    return pd.DataFrame(
        [{**_figures(row), "verdict": VERDICTS[row.outcome]} for row in metrics if row.predicted]
    )


def _figures(row: MetricComparison) -> dict[str, object]:
    metric = METRICS[row.metric.partition(".")[0]]
    factor = metric.factor
    bounds = row.predicted
    return {
        "metric": f"{metric_label(row.metric)}, {metric.unit}",
        "predicted": factor * bounds.value if bounds else None,
        "from": factor * bounds.low if bounds else None,
        "to": factor * bounds.high if bounds else None,
        "measured": None if row.measured is None else factor * row.measured,
        "error, %": None if row.error is None else 100 * row.error,
        "error from, %": None if row.error_low is None else 100 * row.error_low,
        "error to, %": None if row.error_high is None else 100 * row.error_high,
        "limit, %": None if row.limit is None else 100 * row.limit,
    }


def _error_row(row: MetricComparison) -> tuple[object, ...]:
    values = (row.error, row.error_low, row.error_high, row.limit)
    return (
        metric_label(row.metric),
        *(float("nan") if value is None else 100 * value for value in values),
    )


def _readable(root: Path, problems: list[str]) -> list[Path]:
    """Return folders under ``root`` that hold runs; add to ``problems`` why others do not."""
    good = []
    for folder in _folders(root):
        try:
            find_runs([folder])
        except ServetwinError as error:
            if "neither a run folder" not in str(error):
                problems.append(str(error).replace(f"{root}/", ""))
        else:
            good.append(folder)
    return good


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _trials(folders: Sequence[Path]) -> Iterator[Trial]:
    yield from find_runs(folders)[1] if folders else ()


def _name(trial: Trial) -> str:
    """Return the folder that all runs of a trial are in, or the prediction's own name."""
    predicted = trial.predicted.name
    parents = {named.name.rpartition("/")[0] for named in (trial.predicted, *trial.measured)}
    return parents.pop() if len(parents) == 1 and "" not in parents else predicted
