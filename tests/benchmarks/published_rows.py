"""Published measurements of servers as rows of one kind: deployment, load, mean TTFT and TPOT.

The first source are the end-to-end measurements inside the package of kernel tables, which took
them from the InferenceMAX database (``InferenceX`` on GitHub; its scripts say how servers were
started). Each trap of that file has its line here:

- rows are repeated: each measurement counts once;
- only one server (``mode`` agg) is simulated, and only where the load is described: rows of other
  origin ("others") do not say it, and are not scored;
- ``tp4 ep16 dp4`` means four devices: the scripts of nvfp4 start it with tp 1, dp 4 and experts in
  parallel, those of fp8 do not know dp and start tp 4 with experts in parallel. ``batch_size`` is
  then the concurrency over dp; the concurrency is in ``silicon_data_source``;
- formats are coded as one ``precision`` for every part: fp8 is per 128 x 128 weights in all
  checkpoints but Llama's; experts of gpt-oss are mxfp4, its other parts bf16; only the experts of
  Kimi are quantised;
- ``backend_version`` is the server's, and never that of the tables.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pandas as pd

from servetwin.app.calibration.point import users_trace
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.quantisation import Quantisation
from servetwin.sim.step_times.tables.kernel_library import SYSTEMS
from servetwin.workloads.trace import Trace

UNKNOWN = "0-unknown"
"""The version of rows that name none."""
SHORTEST = 0.8
"""Lengths are uniform in this share of the nominal to all of it (``--random-range-ratio``)."""


@dataclass(frozen=True)
class Deployment:
    """What was measured: a model on a layout of GPUs under a version of a server."""

    model: str
    gpu: str
    layout: Layout
    quantisation: Quantisation | None
    backend: str
    version: str

    def __str__(self) -> str:
        formats = self.quantisation
        parts = "its own" if formats is None else f"{formats.gemm}/{formats.experts}/{formats.kv}"
        return f"{self.model} {parts}, {self.gpu} {self.layout}, {self.backend} {self.version}"


@dataclass(frozen=True)
class Load:
    """As many users, each with ten requests one after the other, all users at once."""

    users: int
    prompt_tokens: int
    output_tokens: int

    def trace(self) -> Trace:
        """Return the requests, the same for every server."""
        return users_trace(self.users, self.prompt_tokens, self.output_tokens, SHORTEST)


@dataclass(frozen=True)
class Row:
    """What was measured of a deployment under a load: ``ttft_ms`` and ``tpot_ms`` are means."""

    source: str
    deployment: Deployment
    load: Load
    measured: dict[str, float]


_GPUS = {theirs: ours for ours, theirs in SYSTEMS.items()}


def sample_rows(package: str, backend: str, left_out: Counter[str]) -> Iterator[Row]:
    """Return the rows of the package's sample that can be scored; count the others by reason."""
    path = resources.files(package).joinpath("systems/silicon_sample.csv")
    with resources.as_file(path) as file:
        table = pd.read_csv(file)
    table = table[table["backend"] == backend]
    seen = set()
    for row in table.itertuples(index=False):
        if reason := _unusable(row):
            left_out[reason] += 1
            continue
        found = _row(row)
        key = (found.deployment, found.load, *found.measured.values())
        if key in seen:
            left_out["repeated"] += 1
            continue
        seen.add(key)
        yield found


def _unusable(row: Any) -> str | None:
    if row.mode != "agg":
        return "prompts and answers on different servers"
    if "measured=" not in row.silicon_data_source:
        return "load not described"
    if "silicon_concurrency=" not in row.silicon_data_source:
        return "concurrency not given"
    if row.system not in _GPUS or not isinstance(row.precision, str):
        return "GPU or format not given"
    if not row.silicon_ttft_ms > 0 or not row.silicon_tpot_ms > 0:
        return "no TTFT or TPOT"
    return None


def _row(row: Any) -> Row:
    tp, ep, dp = int(row.tp_size), int(row.moe_ep_size), 1
    if row.attention_dp_size > 1:
        devices = ep = int(row.attention_dp_size)
        ignored = row.backend == "vllm" and row.precision == "fp8"
        tp, dp = (devices, 1) if ignored else (1, devices)
    users = int(row.silicon_data_source.partition("silicon_concurrency=")[2].partition(";")[0])
    deployment = Deployment(
        row.model_path, _GPUS[row.system], Layout(tp=tp, dp=dp, ep=max(1, ep)), _formats(row),
        row.backend, row.backend_version if isinstance(row.backend_version, str) else UNKNOWN,
    )  # fmt: skip
    load = Load(users, int(row.isl), int(row.osl))
    measured = {"ttft_ms": row.silicon_ttft_ms, "tpot_ms": row.silicon_tpot_ms}
    return Row("InferenceMAX", deployment, load, measured)


def _formats(row: Any) -> Quantisation:
    if "gpt-oss" in row.model_path:
        return Quantisation(experts="mxfp4")
    if "Kimi" in row.model_path:
        experts = {"int4": "w4a16-g32", "fp4": "nvfp4"}[row.precision]
        return Quantisation.model_validate({"experts": experts})
    fp8 = "fp8" if "Llama" in row.model_path else "fp8-block"
    kind = {"fp4": "nvfp4", "fp8": fp8}.get(row.precision, row.precision)
    return Quantisation.model_validate({"gemm": kind, "experts": kind})
