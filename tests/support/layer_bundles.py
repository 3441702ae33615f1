"""Bundles of layer times, made of formulas."""

from itertools import product
from pathlib import Path

import pandas as pd
import yaml

ROWS = [1, 16, 64, 128, 256, 512, 1024, 2048]
SEQUENCES = [1, 16, 64, 256]
CHUNKS, STARTS = [0, 64, 256, 1024, 2048], [0, 256, 1024, 4096]
DECODES, CONTEXTS = [0, 1, 8, 64, 256], [0, 256, 1024, 4096]
DENSE_US = {
    "embedding": 4.0, "layernorm": 3.0, "qkv_proj": 60.0, "rotary_emb": 3.0, "o_proj": 40.0,
    "gate_up_proj": 150.0, "act_fn": 5.0, "down_proj": 80.0, "final_layernorm": 3.0,
}  # fmt: skip
"""Microseconds of an operator on one row."""
ROW_US = 0.01
"""What every further row adds to each operator."""


def dense_us(layer: str, rows: float) -> float:
    return DENSE_US[layer] + ROW_US * (rows - 1)


def layer_us(rows: float) -> float:
    """One layer without attention: all that is not done once a step, the norm twice."""
    per_layer = [name for name in DENSE_US if name not in ("embedding", "final_layernorm")]
    return sum(dense_us(name, rows) for name in per_layer) + dense_us("layernorm", rows)


def once_us(rows: float) -> float:
    return dense_us("embedding", rows) + dense_us("final_layernorm", rows)


def head_us(sequences: float) -> float:
    return 500.0 + 20.0 + 0.5 * (sequences - 1)


def attention_us(rows: float, start: float, decodes: float, context: float) -> float:
    """Linear along every axis, so interpolation is exact."""
    if rows == decodes == 0:
        return 0.0
    chunk = 0.01 * rows + 1e-5 * rows * start
    return 5.0 + chunk + 0.5 * decodes + 0.001 * decodes * context


def write_bundle(folder: Path, ranks: int = 1, **skew: float) -> Path:
    """Write a bundle; with ``skew`` (share of decodes, of mixed steps) also unequal contexts."""
    at = folder / f"tp{ranks}"
    at.mkdir(parents=True)
    meta = {"gpu": "Made GPU", "model": "made", "skew_fit": {"enabled": bool(skew)}}
    (folder / "meta.yaml").write_text(yaml.safe_dump(meta))
    dense = [(name, n, dense_us(name, n)) for name, n in product(DENSE_US, ROWS)]
    pd.DataFrame(dense, columns=["layer", "tokens", "time_us"]).to_csv(
        at / "dense.csv", index=False
    )
    heads = [("lm_head", n, head_us(n) - 20.0) for n in SEQUENCES]
    heads += [("sampler", n, 20.0) for n in SEQUENCES]
    columns = ["layer", "sequences", "time_us"]
    pd.DataFrame(heads, columns=columns).to_csv(at / "per_sequence.csv", index=False)
    places = [
        (rows, start, decodes, context)
        for rows, start, decodes, context in product(CHUNKS, STARTS, DECODES, CONTEXTS)
        if (rows or decodes) and (rows or not start) and (bool(decodes) == bool(context))
    ]
    attention = pd.DataFrame(
        [(*place, attention_us(*place)) for place in places],
        columns=["prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"],
    )
    attention.to_csv(at / "attention.csv.gz", index=False)
    if skew:
        rows = [
            (chunk, n, 100.0, 100.0 + gap, 100.0 + share * gap)
            for chunk, share in ((0, skew["decodes"]), (64, skew["mixed"]))
            for n, gap in product((2, 64), (50.0, 200.0))
        ]
        named = ["pc", "n", "t_mean_us", "t_max_us", "t_skew_us"]
        pd.DataFrame(rows, columns=named).to_csv(at / "skew.csv", index=False)
    return folder
