"""Kernel tables against end-to-end measurements of real servers, which come inside their package.

The package of ``--kernels`` has TTFT and TPOT of thousands of servers at a concurrency, many from
the InferenceMAX database. Each is simulated: as many users, ten requests each, one after the other,
lengths uniform in 0.8 to 1.0 of the nominal, chunked prefill under 8,192 rows, KV memory that
does not fill. Then a host time per step is chosen on half of the settings, and judged on the
other half (split by a hash of model, device, backend, precision and ranks)::

    python -m tests.benchmarks.silicon --backend vllm --rows 200

Printed are bias, median, mean and p90 of the error by model and device, in per cent. The rows stay
in the package. Left out: repeated rows, several pipeline stages or attention replicas, more than 8
ranks, and what the package cannot compute (counted by reason).
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, resources
from importlib.util import find_spec
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from policies.config import PolicyConfig
from policies.presets import find_preset
from sim.experiments.predict import run_once
from sim.experiments.scenario import Scenario
from sim.step_times.piecewise import Piece
from sim.step_times.tables import KernelTable, TableProfile
from sim.step_times.tables.kernel_library import BACKENDS, PACKAGES
from tests.benchmarks.black_box import say
from workloads.request import Request
from workloads.trace import Trace

SETTING = ("model_path", "system", "backend", "precision", "tp_size", "moe_ep_size")
HOST_MS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
REQUESTS_PER_USER = 10
POLICIES = PolicyConfig(
    **{
        **find_preset("vllm-v1").policies,
        "prefix_cache": False,
        "max_seqs": 1024,
        "token_budget": 8192,
        "kv_tokens": 1 << 40,
        "max_model_len": 1 << 17,
    }
)


class HostedTable(KernelTable):
    """Kernel tables and a host time in every step."""

    host_ms = 0.0

    def piece(self, shape: Any, step: int = 0) -> Piece:
        """Return the piece with the host time in each of its steps."""
        first, slope, steps = super().piece(shape, step)
        return Piece(first + self._units(self.host_ms), slope, steps)


@dataclass(frozen=True)
class Case:
    """A row of the package, and the step times of its server."""

    row: Any
    table: HostedTable

    @property
    def is_fitted(self) -> bool:
        """Whether its setting is in the half that overheads are fitted on."""
        setting = "|".join(str(getattr(self.row, name)) for name in SETTING)
        return hashlib.sha256(setting.encode()).digest()[0] % 2 == 0

    def errors(self, host_ms: float) -> tuple[float, float]:
        """Return the relative errors of mean TTFT and mean TPOT."""
        self.table.host_ms = host_ms
        profile = TableProfile("silicon", self.table, POLICIES)
        summary = run_once(self._load(), Scenario(POLICIES, profile)).summary()
        ttft_ms, tpot_ms = (1e3 * summary[name]["mean"] for name in ("ttft_s", "tpot_s"))
        return ttft_ms / self.row.silicon_ttft_ms - 1, tpot_ms / self.row.silicon_tpot_ms - 1

    def _load(self) -> Trace:
        rng, users = np.random.default_rng(0), int(self.row.batch_size)
        requests = []
        for place in range(REQUESTS_PER_USER):
            for user in range(users):
                prompt, output = (
                    max(2, int(nominal * rng.uniform(0.8, 1.0)))
                    for nominal in (self.row.isl, self.row.osl)
                )
                before = f"{user}.{place - 1}" if place else None
                requests.append(
                    Request(
                        f"{user}.{place}", 1e-3 * place, prompt, output,
                        parent_id=before, delay_s=0.0 if place else None,
                    )
                )  # fmt: skip
        return Trace(tuple(requests), "users")


def rows_of(package: str, backend: str) -> pd.DataFrame:
    """The rows that are one server of at most 8 ranks, each once."""
    path = resources.files(package).joinpath("systems/silicon_sample.csv")
    with resources.as_file(path) as file:
        rows = pd.read_csv(file)
    rows = rows[(rows["backend"] == backend) & (rows["mode"] == "agg") & (rows["tp_size"] <= 8)]
    rows = rows[(rows["pp_size"] == 1) & (rows["attention_dp_size"].fillna(1) == 1)]
    measured = [*SETTING, "isl", "osl", "batch_size", "silicon_ttft_ms", "silicon_tpot_ms"]
    return rows.drop_duplicates(measured).dropna(subset=["silicon_ttft_ms", "silicon_tpot_ms"])


def cases(package: str, rows: pd.DataFrame, reasons: Counter[str]) -> Iterator[Case]:
    """The rows whose server the package can compute."""
    engine = import_module(f"{package}.sdk.engine").EngineHandle
    known: dict[tuple[Any, ...], HostedTable | None] = {}
    for row in rows.itertuples(index=False):
        key = (row.model_path, row.system, row.backend, row.gemm_quant_mode, row.moe_quant_mode,
               row.tp_size, row.moe_tp_size, row.moe_ep_size)  # fmt: skip
        if key not in known:
            known[key] = _open(engine, row, reasons)
        if (table := known[key]) is not None:
            yield Case(row, table)


def _open(engine: Any, row: Any, reasons: Counter[str]) -> HostedTable | None:
    formats = {
        name: getattr(row, name)
        for name in ("gemm_quant_mode", "moe_quant_mode")
        if isinstance(getattr(row, name), str)
    }
    ranks = {
        name: int(value)
        for name in ("tp_size", "moe_tp_size", "moe_ep_size")
        if (value := getattr(row, name)) and value == value
    }
    model = row.model_path.replace("meta-llama/Llama-3.1", "meta-llama/Meta-Llama-3.1")
    try:
        found = engine.compile(model, row.system, row.backend, **formats, **ranks)
        found.decode_step_latency(8, 1024, 2)
    except Exception as error:  # of the package's own, without a common base
        reasons[" ".join(str(error).split())[:60]] += 1
        return None
    return HostedTable(found, f"{row.model_path} on {row.system}")


def described(errors: "list[tuple[float, float]]") -> str:
    """Bias, median, mean and p90 of the errors of TTFT and TPOT, in per cent."""
    parts = []
    for name, values in zip(("TTFT", "TPOT"), 100 * np.array(errors).T, strict=True):
        off = np.abs(values)
        parts.append(
            f"{name} {np.median(values):+.0f}, {np.median(off):.1f}, {off.mean():.1f}, "
            f"{np.quantile(off, 0.9):.1f}"
        )
    return f"{len(errors)} rows: {'; '.join(parts)}"


def main(
    backend: Annotated[str, typer.Option(help=f"One of {', '.join(BACKENDS)}.")] = "vllm",
    rows: Annotated[int, typer.Option(help="Rows to simulate, drawn at random.")] = 200,
    most_users: Annotated[int, typer.Option(help="Rows of at most so many users.")] = 128,
    seed: int = 0,
) -> None:
    """Simulate the rows and print the errors."""
    package = next((name for name in PACKAGES if find_spec(name)), None)
    if package is None:
        raise SystemExit("no package with kernel tables: pip install servetwin[kernels]")
    logging.disable(logging.WARNING)
    found = rows_of(package, backend)
    found = found[found["batch_size"] <= most_users]
    reasons: Counter[str] = Counter()
    chosen = list(cases(package, found.sample(min(rows, len(found)), random_state=seed), reasons))
    say(f"{backend}: {len(found)} rows, {len(chosen)} simulated; not computed: {dict(reasons)}")
    say("bias, median, mean, p90 of the error in per cent, without any overhead:")
    raw = [(case, case.errors(0.0)) for case in chosen]
    say(f"  all: {described([errors for _, errors in raw])}")
    for name in ("model_path", "system"):
        for value in sorted({getattr(case.row, name) for case in chosen}):
            part = [errors for case, errors in raw if getattr(case.row, name) == value]
            say(f"  {value}: {described(part)}")
    fitted = [case for case in chosen if case.is_fitted]
    off = {ms: np.median([abs(case.errors(ms)[1]) for case in fitted]) for ms in HOST_MS}
    best = min(off, key=lambda ms: float(off[ms]))
    held_out = [case for case in chosen if not case.is_fitted]
    say(f"host time chosen on {len(fitted)} rows: {best:g} ms a step")
    say(f"  held out, raw: {described([e for case, e in raw if not case.is_fitted])}")
    say(f"  held out, with it: {described([case.errors(best) for case in held_out])}")


if __name__ == "__main__":
    typer.run(main)
