"""How near kernel tables and the overheads of a server come to published measurements.

Every row of ``published_rows`` is simulated: the deployment's table, the preset of its server, the
described load, KV memory that does not fill::

    python -m tests.benchmarks.published --backend vllm --newest-than 0.18

- *raw*: kernel tables alone;
- *overheads*: with ``--overheads fitted``, or with those that ``--fit`` fits here, on the half of
  the deployments that the seed draws (``published_overheads`` fits those shipped so);
- *one point*: a factor on kernels, and overheads, from the middle row of each deployment (by users,
  then lengths); judged on its other rows.

Printed for the other half are bias, median and p90 of the error of means in per cent, by GPU,
model, version, load and users, and the rows that are left out with the reason. ``--out`` has the
errors of every row. A row takes one to three seconds, of hundreds of users ten.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from servetwin.app.calibration.point import TERMS, ServerUnderLoad, fit_point, fit_terms, means_s
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import find_preset
from servetwin.sim.catalogue.versions import version_numbers
from servetwin.sim.experiments.scenario import RANK_ROUTER, ClusterConfig
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables import KernelTable
from servetwin.sim.step_times.tables.kernel_library import (
    BACKENDS,
    SYSTEMS,
    installed_package,
    open_kernels,
)
from servetwin.sim.step_times.tables.server_overheads import ServerOverheads, fitted_overheads
from servetwin.workloads.errors import ProfileError
from tests.benchmarks.black_box import say
from tests.benchmarks.published_rows import Deployment, Load, Row, sample_rows

KINDS = ("raw", "overheads", "one point")
PRESETS = {"vllm": "vllm-v1", "sglang": "sglang", "trtllm": "tensorrt-llm"}
MEMORY = {"vllm": ("of_total", 0.9), "sglang": ("of_total", 0.88), "trtllm": ("of_free", 0.9)}
"""The share of the memory that each backend gives to keys and values by default."""
START = ServerOverheads(prefill_chunk_s=0.01, prefill_row_s=5e-6, most_chunks=3)
COMMON = {name: width for name, width in TERMS.items() if name != "factor"}
"""Terms that are the same for every server of a backend."""
SHIPPED_FITS = ("vllm",)
"""Backends with overheads; the fits of the others end at a bound."""
_BUDGET, _SEQS, _UNLIMITED, _LONGEST = 8192, 2048, 1 << 40, 1 << 17
_METRICS = ("TTFT", "TPOT")
FIRST = ("0", "0.18")
"""The first versions of the ranges whose halves are drawn, and fitted, apart."""
FEW_USERS = 64
"""The most of the rows that name the halves; a deployment of others is held out."""
CROWDS = {8: "to 8", 64: "16 to 64", 2048: "128 and more"}
"""Groups of users, by the most of each."""


@dataclass(frozen=True)
class Case:
    """A row, and its server as it is simulated."""

    row: Row
    server: ServerUnderLoad

    def error(self, overheads: ServerOverheads) -> FloatArray:
        """Return the relative errors of mean TTFT and TPOT."""
        errors: FloatArray = means_s(self.server.run(overheads)) / self.server.measured_s() - 1
        return errors


def policies(backend: str, prompt_tokens: int) -> PolicyConfig:
    """Return the preset of a server, with memory and limits that do not bind."""
    preset = find_preset(PRESETS[backend]).policies
    whole = 0 if preset["batching"] in ("chunked", "unified") else prompt_tokens
    sizes = {"max_seqs": _SEQS, "kv_tokens": _UNLIMITED, "max_model_len": _LONGEST}
    budget = {"token_budget": max(_BUDGET, whole)}
    no_reuse = {"prefix_cache": False, "queue_order": "fcfs"}
    return PolicyConfig(**{**preset, **sizes, **budget, **no_reuse})


def cases_of(rows: Iterable[Row], package: str, left_out: Counter[str]) -> Iterator[Case]:
    """Return the rows that have tables, and whose users fit into the memory."""
    tables: dict[Deployment, KernelTable | str] = {}
    for row in rows:
        deployment = row.deployment
        if deployment not in tables:
            tables[deployment] = _opened(deployment)
        table = tables[deployment]
        if isinstance(table, str):
            left_out[table] += 1
        elif not _fits(package, deployment, row.load):
            left_out["KV memory full"] += 1
        else:
            ttft_s, tpot_s = (1e-3 * row.measured[name] for name in ("ttft_ms", "tpot_ms"))
            settings = policies(deployment.backend, row.load.prompt_tokens)
            trace = row.load.trace()
            cluster = ClusterConfig(ranks=deployment.layout.dp, router=RANK_ROUTER)
            yield Case(row, ServerUnderLoad(trace, ttft_s, tpot_s, table, settings, cluster))


def halves(cases: Sequence[Case], seed: int) -> tuple[list[Case], list[Case]]:
    """Return the cases of the deployments to fit on, and of those held out."""
    fitting: set[str] = set()
    for first in FIRST:
        few = [c for c in cases if c.row.load.users <= FEW_USERS and first_version(c.row) == first]
        names = sorted({str(case.row.deployment) for case in few})
        order = np.random.default_rng(seed).permutation(len(names))
        fitting |= {names[place] for place in order[: len(names) // 2]}
    halves: tuple[list[Case], list[Case]] = ([], [])
    for case in cases:
        halves[str(case.row.deployment) not in fitting].append(case)
    return halves


def first_version(row: Row) -> str:
    """Return the first version of the range that a row's server is in."""
    version = version_numbers(row.deployment.version)
    return [first for first in FIRST if version_numbers(first) <= version][-1]


def errors_of(
    cases: Sequence[Case], overheads: Callable[[Row], ServerOverheads], one_point: bool = True
) -> pd.DataFrame:
    """Return the errors in per cent, a row for each case and two columns for each kind."""
    middles = _middles(cases) if one_point else {}
    points = {name: fit_point(one.server, overheads(one.row)) for name, one in middles.items()}
    lines = []
    for case in cases:
        deployment, load = case.row.deployment, case.row.load
        kinds = {"raw": case.error(ServerOverheads()), "overheads": case.error(overheads(case.row))}
        if case is not middles.get(deployment, case):
            kinds["one point"] = case.error(points[deployment])
        line: dict[str, object] = {
            "model": deployment.model,
            "gpu": deployment.gpu,
            "version": deployment.version,
            "layout": str(deployment.layout),
            "doubtful": bool(getattr(case.server.table, "doubts", ())),
            "load": f"{load.prompt_tokens}/{load.output_tokens}",
            "users": load.users,
            "crowd": next(name for most, name in CROWDS.items() if load.users <= most),
        }
        for kind, error in kinds.items():
            line |= {f"{kind} {m}": 100 * e for m, e in zip(_METRICS, error, strict=True)}
        lines.append(line)
    return pd.DataFrame(lines)


def printed(errors: pd.DataFrame, name: str, kinds: Iterable[str] = KINDS) -> None:
    """Print a line per kind: bias, median and p90 of the errors of TTFT and TPOT."""
    for kind in kinds:
        if f"{kind} TTFT" in errors and errors[f"{kind} TTFT"].notna().any():
            columns = [errors[f"{kind} {metric}"].dropna() for metric in _METRICS]
            parts = [f"{m} {_figures(c)}" for m, c in zip(_METRICS, columns, strict=True)]
            say(f"  {name}, {kind}, {len(columns[0])} rows: {'; '.join(parts)}")


def _figures(errors: "pd.Series[float]") -> str:
    off = errors.abs()
    return f"{errors.median():+.1f}, {off.median():.1f}, {off.quantile(0.9):.0f}"


def _middles(cases: Sequence[Case]) -> dict[Deployment, Case]:
    """Return the row of each deployment that counts as measured."""
    groups: dict[Deployment, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.row.deployment].append(case)
    order: Callable[[Case], tuple[int, int, int]] = lambda case: (  # noqa: E731
        case.row.load.users, case.row.load.prompt_tokens, case.row.load.output_tokens,
    )  # fmt: skip
    return {name: sorted(group, key=order)[len(group) // 2] for name, group in groups.items()}


def _opened(deployment: Deployment) -> KernelTable | str:
    d = deployment
    try:
        return open_kernels(d.model, d.gpu, d.backend, d.layout, d.quantisation, d.version)
    except ProfileError as error:
        return str(error).removeprefix("--times kernels: ")[:150]


def _fits(package: str, deployment: Deployment, load: Load) -> bool:
    """Return whether keys and values of all users fit, by the package's estimate."""
    kind, share = MEMORY[deployment.backend]
    layout = deployment.layout
    try:
        estimate = import_module(f"{package}.sdk.memory").estimate_kv_cache(
            deployment.model, SYSTEMS[deployment.gpu], deployment.backend,
            backend_version="current", max_num_tokens=_BUDGET, max_batch_size=load.users,
            memory_fraction_kind=kind, memory_fraction_value=share, tp_size=layout.tp,
            attention_dp_size=layout.dp,
            moe_tp_size=layout.moe_tp, moe_ep_size=layout.ep,
        )  # fmt: skip
    except Exception:  # of the package's own, without a common base
        return True
    longest = load.prompt_tokens + load.output_tokens
    return bool(load.users / layout.dp * longest <= estimate["total_kv_size_tokens"])


def main(
    backend: Annotated[str, typer.Option(help=f"One of {', '.join(BACKENDS)}.")] = "vllm",
    newest_than: Annotated[str, typer.Option(help="Servers of this version and later.")] = "0",
    older_than: Annotated[str, typer.Option(help="Servers before this version.")] = "",
    rows: Annotated[int, typer.Option(help="Rows to simulate, drawn at random.")] = 10_000,
    least_users: Annotated[int, typer.Option(help="Rows of at least so many users.")] = 1,
    most_users: Annotated[int, typer.Option(help="Rows of at most so many users.")] = 2048,
    one_point: Annotated[bool, typer.Option(help="A measured row of each deployment.")] = True,
    seed: Annotated[int, typer.Option(help="Draws the halves.")] = 0,
    fit: Annotated[bool, typer.Option(help="Fit overheads instead of the shipped.")] = False,
    out: Annotated[Path | None, typer.Option(help="A CSV of the errors of every row.")] = None,
) -> None:
    """Simulate the rows and print the errors."""
    package = installed_package()
    if package is None:
        raise SystemExit("no package with kernel tables: pip install servetwin[kernels]")
    logging.disable(logging.WARNING)
    began_s = perf_counter()
    left_out: Counter[str] = Counter()
    there = list(sample_rows(package, backend, left_out))
    least, end = version_numbers(newest_than), version_numbers(older_than or None)
    new = [
        row for row in there
        if least <= version_numbers(row.deployment.version) and (
            not older_than or version_numbers(row.deployment.version) < end
        )
    ]  # fmt: skip
    few = [row for row in new if least_users <= row.load.users <= most_users]
    left_out |= Counter({"of other versions": len(there) - len(new)})
    left_out |= Counter({f"not {least_users} to {most_users} users": len(new) - len(few)})
    drawn = np.random.default_rng(seed).permutation(len(few))[:rows]
    cases = list(cases_of((few[place] for place in sorted(drawn)), package, left_out))
    fitting, held_out = halves(cases, seed)
    fitted = fit_terms([case.server for case in fitting], START, COMMON) if fit else None

    def overheads(row: Row) -> ServerOverheads:
        if fitted is None and backend not in SHIPPED_FITS:
            return ServerOverheads()
        return fitted or fitted_overheads(backend, row.deployment.version)

    errors = errors_of(held_out, overheads, one_point)
    if out is not None:
        errors.to_csv(out)
    say(f"{backend}: {len(fitting)} rows to fit on, {len(held_out)} held out, "
        f"{len({case.row.deployment for case in cases})} deployments; left out:")  # fmt: skip
    for reason, count in left_out.most_common():
        say(f"  {count}: {reason}")
    for line in sorted({overheads(case.row).described() for case in held_out}):
        say(line)
    say("bias, median, p90 of the error in per cent:")
    printed(errors, "held out")
    printed(errors[~errors["doubtful"]], "held out, plausible tables")
    for column in ("gpu", "model", "version", "load", "crowd", "users"):
        for value, part in errors.groupby(column):
            printed(part, f"held out, {column} {value}", ("overheads", "one point"))
    say(f"{perf_counter() - began_s:.0f} s")


if __name__ == "__main__":
    typer.run(main)
