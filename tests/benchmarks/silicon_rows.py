"""The end-to-end measurements inside the package of kernel tables: which rows, as what server.

Each trap of the file has its line here:

- rows are repeated: each measurement counts once;
- only one server (``mode`` agg) without pipeline stages or attention replicas, of at most 8 ranks,
  is simulated: more ranks are miscoded;
- where ranks of experts are neither one nor all of the ranks, replicas of attention were left out;
- where the concurrency in the source is not the batch size, the row is one replica of several;
- some models have another name in the package, or only that of their unquantised form;
- the format of the row is passed. Where the tables lack it, the part that they lack is that of the
  checkpoint; experts of gpt-oss are mxfp4, whatever the row says; latent attention is bf16 where it
  was not measured in fp8;
- ``backend_version`` of a row is not in the tables: the current one is passed, also for KV memory.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module, resources
from typing import Any

import numpy as np
import pandas as pd

from servetwin.sim.step_times.tables.kernel_table import KernelTimes

SETTING = ("model_path", "system", "backend", "precision", "tp_size", "moe_ep_size")
MEASURED = (*SETTING, "isl", "osl", "batch_size", "silicon_ttft_ms", "silicon_tpot_ms")
MOST_RANKS = 8
ALIASES = {
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "zhipuai/GLM-5": "zai-org/GLM-5",
}
IMPLAUSIBLE = (
    ("gpt-oss", "b200_sxm", ("vllm", "trtllm", "sglang")),
    ("Qwen3-235B", "h200_sxm", ("vllm",)),
)
"""Model, device, backends: a step of experts takes several times the reading of their weights."""

MEMORY = {"vllm": ("of_total", 0.9), "sglang": ("of_total", 0.88), "trtllm": ("of_free", 0.9)}
"""The share of the memory that each backend gives to keys and values by default."""


@dataclass(frozen=True)
class Server:
    """A server of the package: its kernel times, and how it was asked for."""

    kernels: KernelTimes
    model: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A measurement: a server under so many users, its mean TTFT and TPOT in milliseconds."""

    model: str
    system: str
    backend: str
    setting: str
    users: int
    prompt_tokens: int
    output_tokens: int
    ttft_ms: float
    tpot_ms: float
    source: str
    fits: bool
    """Whether keys and values of all users fit into the memory by the package's estimate."""
    server: Server

    @property
    def is_fitted(self) -> bool:
        """Whether its setting is in the half that overheads are fitted on."""
        return sha256(self.setting.encode()).digest()[0] % 2 == 0

    @property
    def is_plausible(self) -> bool:
        """Whether its tables are not known to be wrong."""
        return not any(
            name in self.model and self.system == system and self.backend in backends
            for name, system, backends in IMPLAUSIBLE
        )


def measured_rows(package: str, backend: str, most_users: int) -> pd.DataFrame:
    """Return the rows of the file that are one server with a load that can be simulated."""
    path = resources.files(package).joinpath("systems/silicon_sample.csv")
    with resources.as_file(path) as file:
        rows = pd.read_csv(file)
    rows = rows[(rows["backend"] == backend) & (rows["mode"] == "agg")]
    rows = rows.drop_duplicates(list(MEASURED)).dropna(subset=list(MEASURED[-3:]))
    rows["source"] = np.where(
        rows["silicon_data_source"].str.contains("measured="), "InferenceMAX", "others"
    )
    said = rows["silicon_data_source"].str.extract(r"silicon_concurrency=(\d+)")[0].astype(float)
    experts = _ranks(rows["moe_tp_size"]) * _ranks(rows["moe_ep_size"])
    return rows[
        (rows["tp_size"] <= MOST_RANKS)
        & (rows["pp_size"] == 1)
        & (rows["attention_dp_size"].fillna(1) <= 1)
        & (said.isna() | (said == rows["batch_size"]))
        & ((experts == 1) | (experts == rows["tp_size"]))
        & (rows["batch_size"] <= most_users)
    ]


def computed(package: str, rows: pd.DataFrame, reasons: Counter[str]) -> Iterator[Row]:
    """Return the rows whose server the package can compute; ``reasons`` counts the others."""
    known: dict[tuple[str, ...], Server | None] = {}
    for row in rows.sort_values(list(SETTING)).itertuples(index=False):
        formats = (str(row.gemm_quant_mode), str(row.moe_quant_mode), str(row.moe_tp_size))
        key = (*(str(getattr(row, name)) for name in SETTING), *formats)
        if key not in known:
            known[key] = _open(package, row, reasons)
        if (server := known[key]) is not None:
            yield _row(package, row, server, reasons)


def own_estimate(package: str, row: Row) -> tuple[float, float]:
    """Return TTFT and TPOT in milliseconds as the package itself estimates them.

    Its command takes a step's prompt tokens as one whole prompt, if not told otherwise.
    """
    sdk = f"{package}.sdk"
    options = {"moe_tp_size": 1, "moe_ep_size": 1, **row.server.options}
    config = import_module(f"{sdk}.config_builders").build_model_config(
        pp_size=1, attention_dp_size=1, **options
    )
    model = import_module(f"{sdk}.models").get_model(row.server.model, config, row.backend)
    tables = import_module(f"{sdk}.perf_database").get_database(row.system, row.backend, "current")
    load = import_module(f"{sdk}.config").RuntimeConfig(
        batch_size=row.users, beam_width=1, isl=row.prompt_tokens, osl=row.output_tokens
    )
    backend = import_module(f"{sdk}.backends.factory").get_backend(row.backend)
    found = backend.run_agg(model, tables, load, ctx_tokens=row.prompt_tokens).get_summary_df()
    return float(found["ttft"].iloc[0]), float(found["tpot"].iloc[0])


def _ranks(column: "pd.Series[float]") -> "pd.Series[float]":
    return column.fillna(1).replace(0, 1)


def _open(package: str, row: Any, reasons: Counter[str]) -> Server | None:
    model = ALIASES.get(row.model_path, row.model_path)
    ranks = {"tp_size": int(row.tp_size)}
    if row.moe_tp_size * row.moe_ep_size == row.tp_size:
        ranks |= {"moe_tp_size": int(row.moe_tp_size), "moe_ep_size": int(row.moe_ep_size)}
    compile_ = import_module(f"{package}.sdk.engine").EngineHandle.compile
    first = None
    for formats in _formats(row):
        options = {**ranks, **formats}
        try:
            found = compile_(model, row.system, row.backend, **options)
            found.decode_step_latency(8, 1024, 2)
            found.mixed_step_breakdown(512, 4, 1024, 2, 0)
        except Exception as error:  # of the package's own, without a common base
            first = first or error
        else:
            return Server(found, model, options)
    reasons[f"{row.model_path}, {row.system}: {' '.join(str(first).split())[:80]}"] += 1
    return None


def _formats(row: Any) -> Iterator[dict[str, str]]:
    """Return the formats to try: the row's, then the checkpoint's where a table is missing."""
    given = {
        name: getattr(row, name)
        for name in ("gemm_quant_mode", "moe_quant_mode")
        if isinstance(getattr(row, name), str) and "gpt-oss" not in row.model_path
    }
    for attention in ({}, {"fmha_quant_mode": "bfloat16"}):
        for left_out in ((), ("moe_quant_mode",), ("gemm_quant_mode",), tuple(given)):
            kept = {name: value for name, value in given.items() if name not in left_out}
            yield {**kept, **attention}


def _row(package: str, row: Any, server: Server, reasons: Counter[str]) -> Row:
    users, prompt, output = int(row.batch_size), int(row.isl), int(row.osl)
    try:
        fits = users * (prompt + output) <= _kv_tokens(package, row, server)
    except Exception as error:  # of the package's own, without a common base
        reasons[f"simulated, KV memory unknown: {' '.join(str(error).split())[:60]}"] += 1
        fits = False
    setting = "|".join(str(getattr(row, name)) for name in SETTING)
    return Row(
        row.model_path, row.system, row.backend, setting, users, prompt, output,
        row.silicon_ttft_ms, row.silicon_tpot_ms, row.source, fits, server,
    )  # fmt: skip


def _kv_tokens(package: str, row: Any, server: Server) -> int:
    kind, share = MEMORY[row.backend]
    estimate = import_module(f"{package}.sdk.memory").estimate_kv_cache(
        server.model,
        row.system,
        row.backend,
        backend_version="current",
        max_num_tokens=8192,
        max_batch_size=int(row.batch_size),
        memory_fraction_kind=kind,
        memory_fraction_value=share,
        **server.options,
    )
    return int(estimate["total_kv_size_tokens"])
