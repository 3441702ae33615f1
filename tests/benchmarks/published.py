"""Kernel tables against end-to-end measurements of real servers, which come inside their package.

The package of ``--kernels`` has TTFT and TPOT of thousands of servers at a concurrency, many from
the InferenceMAX database. Each is simulated: as many users, ten requests each, one after the other,
all users at once, lengths uniform in 0.8 to 1.0 of the nominal, KV memory that does not fill::

    python -m tests.benchmarks.silicon --backend vllm --rows 300

- *raw*: kernel tables alone;
- *own*: what the package itself estimates;
- *shipped*: with ``--overheads fitted``, where the backend has some;
- *fitted*: overheads that are fitted here, on the half of the settings that a hash chooses;
- *one point*: a factor on kernels and overheads of each deployment from one of its rows (the middle
  one by users, then lengths), near the fit; judged on its other rows.

A setting or deployment is model, device, backend, precision and ranks. Printed are bias, median,
mean and p90 of the error of means, in per cent. The rows stay in the package; which of them count,
and the traps among them, is in ``silicon_rows``. A row takes about a second; the default ends
within ten minutes.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables import KernelTable
from servetwin.sim.step_times.tables.kernel_library import BACKENDS, installed_package
from servetwin.sim.step_times.tables.server_overheads import fitted_overheads
from servetwin.workloads.errors import ProfileError
from tests.benchmarks.black_box import say
from tests.benchmarks.silicon_fit import Case, Guess, fitted, fitted_to_one, middle_case
from tests.benchmarks.silicon_rows import Row, computed, measured_rows, own_estimate

KINDS = ("raw", "own", "shipped", "fitted", "one point")


def judged(package: str, cases: Sequence[Case], backend: str) -> tuple[pd.DataFrame, Guess]:
    """Return the relative errors of every case by kind, and the overheads that were fitted."""
    found = [case for case in cases if case.row.is_fitted and case.row.fits]
    guess = fitted(found) if found else Guess()
    shipped = _shipped(backend)
    lines = []
    for case, one in zip(cases, _one_points(cases, guess), strict=True):
        values: dict[str, FloatArray] = {"raw": case.raw_ms, "own": _own(package, case.row)}
        if shipped is not None:
            values["shipped"] = case.simulated_ms(shipped)
        values["fitted"] = case.simulated_ms(guess)
        if one is not None:
            values["one point"] = case.simulated_ms(one)
        errors = {kind: ms / case.measured_ms - 1 for kind, ms in values.items()}
        lines.append(
            {
                "model": case.row.model,
                "system": case.row.system,
                "source": case.row.source,
                "fitted half": case.row.is_fitted,
                "fits": case.row.fits,
                "plausible": case.row.is_plausible,
                **{f"{kind} TTFT": 100 * e[0] for kind, e in errors.items()},
                **{f"{kind} TPOT": 100 * e[1] for kind, e in errors.items()},
            }
        )
    return pd.DataFrame(lines), guess


def _one_points(cases: Sequence[Case], prior: Guess) -> list[Guess | None]:
    """Return what one row of its deployment says of each case; None of that row itself."""
    deployments: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        deployments[case.row.setting].append(case)
    points = {setting: middle_case(group) for setting, group in deployments.items()}
    guesses = {setting: fitted_to_one(point, prior) for setting, point in points.items()}
    settings = [(case, case.row.setting) for case in cases]
    return [None if points[name] is case else guesses[name] for case, name in settings]


def _shipped(backend: str) -> Guess | None:
    try:
        return Guess(1.0, fitted_overheads(backend))
    except ProfileError:
        return None


def _own(package: str, row: Row) -> FloatArray:
    try:
        return np.array(own_estimate(package, row))
    except Exception:  # of the package's own, without a common base
        return np.full(2, np.nan)


def printed(errors: pd.DataFrame, name: str) -> None:
    """Print a line per kind: bias, median, mean and p90 of the errors of TTFT and TPOT."""
    for kind in KINDS:
        if f"{kind} TTFT" not in errors:
            continue
        columns = [errors[f"{kind} {what}"].dropna() for what in ("TTFT", "TPOT")]
        if len(columns[0]):
            parts = [
                f"{what} {_figures(c)}" for what, c in zip(("TTFT", "TPOT"), columns, strict=True)
            ]
            say(f"  {name}, {kind}, {len(columns[0])} rows: {'; '.join(parts)}")


def _figures(errors: "pd.Series[float]") -> str:
    off = errors.abs()
    return f"{errors.median():+.0f}, {off.median():.1f}, {off.mean():.1f}, {off.quantile(0.9):.0f}"


def _groups(errors: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    for name in ("source", "model", "system"):
        for value, part in errors.groupby(name):
            yield str(value), part


def _built(rows: Iterable[Row], shortest: float) -> list[Case]:
    """Return the simulated rows; rows of one server share the step times that it remembers."""
    tables: dict[int, KernelTable] = {}
    found = []
    for row in rows:
        table = tables.setdefault(
            id(row.server), KernelTable(row.server.kernels, f"{row.model} on {row.system}")
        )
        found.append(Case(row, table, shortest))
    return found


def main(
    backend: Annotated[str, typer.Option(help=f"One of {', '.join(BACKENDS)}.")] = "vllm",
    rows: Annotated[int, typer.Option(help="Rows to simulate, drawn at random.")] = 300,
    most_users: Annotated[int, typer.Option(help="Rows of at most so many users.")] = 256,
    shortest: Annotated[float, typer.Option(help="Shortest length, as a share.")] = 0.8,
    seed: int = 0,
    out: Annotated[Path | None, typer.Option(help="A CSV of the errors of every row.")] = None,
) -> None:
    """Simulate the rows and print the errors."""
    package = installed_package()
    if package is None:
        raise SystemExit("no package with kernel tables: pip install servetwin[kernels]")
    logging.disable(logging.WARNING)
    began_s = perf_counter()
    there = measured_rows(package, backend, most_users)
    reasons: Counter[str] = Counter()
    drawn = there.sample(min(rows, len(there)), random_state=seed)
    cases = _built(computed(package, drawn, reasons), shortest)
    errors, guess = judged(package, cases, backend)
    if out is not None:
        errors.to_csv(out)
    held_out = errors[~errors["fitted half"] & errors["fits"]]
    parts: list[tuple[str, Callable[[], pd.DataFrame]]] = [
        ("held out", lambda: held_out),
        ("held out, plausible tables", lambda: held_out[held_out["plausible"]]),
        ("fitting half", lambda: errors[errors["fitted half"] & errors["fits"]]),
        ("KV memory full", lambda: errors[~errors["fits"]]),
    ]
    say(f"{backend}: {len(there)} rows, {len(cases)} simulated; not computed: {dict(reasons)}")
    say(f"fitted here: {guess.overheads.described()}")
    say("bias, median, mean, p90 of the error in per cent:")
    for name, part in parts:
        printed(part(), name)
    for name, part_of in _groups(held_out):
        printed(part_of, f"held out, {name}")
    say(f"{perf_counter() - began_s:.0f} s")


if __name__ == "__main__":
    typer.run(main)
