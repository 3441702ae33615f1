"""Tables of measured times, made of formulas with known noise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.tables.published_tables import OperatorTable, PhaseTable

LAYERS, OVERHEAD_S = 4, 1e-3
ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
BATCHES, CONTEXTS = [1, 2, 4, 8, 16, 32], [0, 128, 256, 512, 1024, 2048]
OPERATORS = {
    "attn_pre_proj": 3.0, "attn_post_proj": 1.0, "mlp_up_proj": 8.0, "mlp_act": 0.1,
    "mlp_down_proj": 4.0, "input_layernorm": 0.1, "add": 0.1,
}  # fmt: skip
"""Relative work of the operators of a layer."""


def tiles(rows: int) -> int:
    return -(-rows // 64)


def linear_ms(rows: int, work: float) -> float:
    """A launch, and the longer of reading the weights and computing whole tiles."""
    return 0.004 + work * max(0.01, 0.006 * tiles(rows))


def prefill_ms(rows: int, start: int) -> float:
    return 0.01 + 2e-7 * (rows * start + rows * (rows + 1) / 2)


def decode_ms(decodes: int, context: int) -> float:
    return 0.008 + 3e-6 * decodes * context


Noise = Callable[[], float]


def quiet() -> float:
    return 1.0


def noisy(sigma: float, seed: int = 1) -> Noise:
    rng = np.random.default_rng(seed)
    return lambda: float(np.exp(sigma * rng.standard_normal()))


def mlp_frame(noise: Noise = quiet, rows: list[int] = ROWS) -> pd.DataFrame:
    shared = {"n_head": 32, "n_embd": 4096, "num_tensor_parallel_workers": 1}
    return pd.DataFrame(
        [
            {"time_stats.emb.median": 0.002 + 1e-5 * n}
            | {f"time_stats.{k}.median": noise() * linear_ms(n, w) for k, w in OPERATORS.items()}
            | shared
            | {"num_tokens": n}
            for n in rows
        ]
    )


def attention_frame(noise: Noise = quiet, longest: int = 4096) -> pd.DataFrame:
    """Chunks at the multiples of their size, as Vidur's profiler lays them out, and decodes."""
    chunks = [(n, s) for n in (32, 64, 128, 256, 512, 1024, 2048) for s in range(0, longest - n, n)]
    prefill = [
        {
            "batch_size": 1,
            "prefill_chunk_size": n,
            "kv_cache_size": s,
            "time_stats.attn_prefill.median": noise() * prefill_ms(n, s),
        }
        for n, s in chunks
    ]
    decode = [{"batch_size": b, "prefill_chunk_size": 0, "kv_cache_size": c,
               "time_stats.attn_decode.median": noise() * decode_ms(b, c)}
              for b in BATCHES for c in CONTEXTS]  # fmt: skip
    frame = pd.DataFrame([*prefill, *decode])
    frame["is_prefill"] = frame["prefill_chunk_size"] > 0
    frame["time_stats.attn_kv_cache_save.median"] = 0.003
    return frame.assign(n_embd=4096, n_q_head=32, num_tensor_parallel_workers=1)


def operators(folder: Path, noise: Noise = quiet, **settings: Any) -> OperatorTable:
    mlp, attention = folder / "mlp.csv", folder / "attention.csv"
    mlp_frame(noise).to_csv(mlp, index=False)
    attention_frame(noise).to_csv(attention, index=False)
    given = {"layers": LAYERS, "overhead_s": OVERHEAD_S, **settings}
    return OperatorTable.read(mlp, attention, **given)


def ttft_ms(prompt: int, batch: int) -> float:
    return 20 + 0.15 * prompt * batch + 1e-6 * prompt**2 * batch


def tbt_ms(context: float, batch: int) -> float:
    return 22 + 0.3 * batch + 2e-4 * batch * context


def phase_frame(noise: Noise = quiet) -> pd.DataFrame:
    points = [(p, b, o) for p in (128, 256, 512, 1024, 2048) for b in (1, 2, 4, 8, 16)
              for o in (128, 256)]  # fmt: skip
    return pd.DataFrame(
        [
            {
                "model": "m-7b", "hardware": "device", "prompt_size": p, "batch_size": b,
                "token_size": o, "prompt_time": noise() * ttft_ms(p, b),
                "token_time": noise() * tbt_ms(p + o / 2, b), "tensor_parallel": 2,
            }
            for p, b, o in points
        ]
    )  # fmt: skip


def phases(folder: Path, noise: Noise = quiet, **settings: Any) -> PhaseTable:
    path = folder / "perf_model.csv"
    phase_frame(noise).to_csv(path, index=False)
    return PhaseTable.read(path, **settings)


def decode_shape(decodes: int, each: int) -> BatchShape:
    return BatchShape(decodes, decodes * each, decodes)


def prefill_shape(*chunks: tuple[int, int]) -> BatchShape:
    return BatchShape(0, 0, 0, chunks)


Change = Callable[[pd.DataFrame], pd.DataFrame]


def put(column: str, line: int, value: Any) -> Change:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        texts = frame.astype(object)
        texts.loc[line - 2, column] = value
        return texts

    return change
