"""Overheads of vLLM fitted anew, by ranges of version, and how far versions lie apart.

``python -m tests.benchmarks.published_table --fit`` writes them into the catalogue. Fitted is on a
few rows of each deployment of the fitting half (``published.halves``); where that comes no nearer
to all rows of this half than what is shipped, the shipped terms stay.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from servetwin.app.calibration.point import TERMS, fit_terms
from servetwin.sim.step_times.tables.server_overheads import ServerOverheads, fitted_overheads
from tests.benchmarks.black_box import say
from tests.benchmarks.published import COMMON, FEW_USERS, Case, cases_of, first_version, halves
from tests.benchmarks.published_rows import UNKNOWN, Row, sample_rows
from tests.support.paths import ROOT

FILE = ROOT / "sim" / "catalogue" / "overheads.json"
BACKEND = "vllm"
"""Fits of the others end at a bound: their schedulers are not imitated near enough."""
LAST = {"0": "0.17", "0.18": "0.19"}
"""The last version of each range, by ``published.FIRST``."""
ROWS = 3
"""Of each deployment, for the fit: those of the fewest, of middling and of the most users."""
SHARE = 0.9
"""Of the pairs of versions that lie within what is printed."""


def refitted(package: str, seed: int = 0) -> dict[str, Any]:
    """Return the shipped overheads, fitted anew."""
    shipped: dict[str, Any] = json.loads(FILE.read_text())
    sample = sample_rows(package, BACKEND, Counter())
    rows = [row for row in sample if row.deployment.version != UNKNOWN]
    few = [row for row in rows if row.load.users <= FEW_USERS]
    fitting, _ = halves(list(cases_of(few, package, Counter())), seed)
    fits = [fitted_range(fitting, first) for first in LAST]
    return shipped | {"fits": fits, "moves": {BACKEND: moves(rows)}}


def fitted_range(fitting: Sequence[Case], first: str) -> dict[str, Any]:
    """Return the fit of a range of versions, as the file has it."""
    mine = [case for case in fitting if first_version(case.row) == first]
    versions = sorted({case.row.deployment.version for case in mine})
    start = fitted_overheads(BACKEND, LAST[first])
    fitted = fit_terms([case.server for case in some(mine)], start, COMMON)
    found = rounded(fitted)
    before, after = (misfit(mine, one) for one in (start, found))
    say(f"{BACKEND} {versions}: {len(mine)} rows, {found.as_text()}; median error "
        f"{before:.1%} before, {after:.1%} after")  # fmt: skip
    best = found if after < before else start
    terms = {name: float(v) for name, _, v in (t.partition("=") for t in best.as_text().split(","))}
    oldest = min(versions).rpartition(".")[0]
    return {"backend": BACKEND, "versions": [oldest, LAST[first]], "terms": terms}


def some(cases: Iterable[Case]) -> list[Case]:
    """Return a few rows of each deployment."""
    groups = defaultdict(list)
    for case in cases:
        groups[case.row.deployment].append(case)
    chosen = []
    for group in groups.values():
        ordered = sorted(group, key=lambda case: (case.row.load.users, case.row.load.prompt_tokens))
        places = np.linspace(0, len(ordered) - 1, min(ROWS, len(ordered))).round().astype(int)
        chosen += [ordered[place] for place in places]
    return chosen


def misfit(cases: Sequence[Case], overheads: ServerOverheads) -> float:
    """Return the mean of the median errors of TTFT and TPOT."""
    errors = np.array([np.abs(case.error(overheads)) for case in cases])
    return float(np.median(errors, axis=0).mean())


def rounded(overheads: ServerOverheads) -> ServerOverheads:
    """Return the terms to three figures."""
    terms = {name: float(f"{getattr(overheads, name):.3g}") for name in TERMS}
    return replace(overheads, **terms)  # type: ignore[arg-type]


def moves(rows: Iterable[Row]) -> dict[str, float]:
    """Return how far the means of one deployment and load lie apart between two versions.

    That is the ratio within which ``SHARE`` of the pairs of versions lie, less 1.
    """
    means: dict[object, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        same = replace(row.deployment, version=""), row.load
        means[same][row.deployment.version].append(row)
    ratios: dict[str, list[float]] = {"ttft": [], "tpot": []}
    for by_version in means.values():
        for pair in combinations(by_version.values(), 2):
            for metric, values in ratios.items():
                one, other = (fmean(row.measured[f"{metric}_ms"] for row in same) for same in pair)
                values.append(abs(np.log(one / other)))
    wide = {
        metric: float(f"{np.expm1(np.quantile(values, SHARE)):.2g}")
        for metric, values in ratios.items()
    }
    return {**wide, "pairs": len(ratios["ttft"])}
