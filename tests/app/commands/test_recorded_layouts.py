"""Recorded runs of two GPUs with a known truth: tensor parallel, and ranks that share experts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import find_preset
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables.layer_table import as_one_chunk
from servetwin.workloads.request import Request
from tests.support.command import refused, servetwin
from tests.support.layer_bundles import attention_us, head_us, layer_us, once_us, write_bundle

LINK_US, LINK_GB_PER_S = 5.0, 20.0
LINK = ("--link-us", LINK_US, "--link-gb-per-s", LINK_GB_PER_S)
LIMITS = {"max_seqs": 64, "token_budget": 1024, "kv_tokens": 60_000}
SETTINGS = (
    "--preset",
    "vllm-v1",
    *(f for s in LIMITS.items() for f in ("--set", "{}={}".format(*s))),
)
MOE = find_model("qwen3-30b-a3b")
IMBALANCE = 1.2


def experts_us(rows: float, reached: float) -> float:
    return 20.0 + 0.4 * rows + 1.5 * reached


@dataclass(frozen=True)
class Truth:
    """Two GPUs by formulas: each rank alone, then messages and experts of all of them."""

    layers: int
    width: int
    ranks: int

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        return self.group_seconds([shape], steps)

    def group_seconds(self, shapes: Sequence[BatchShape], steps: int = 1) -> FloatArray:
        busy = [shape for shape in shapes if shape.rows]
        rows = len(shapes) - len(busy) + sum(shape.rows for shape in busy)
        message_us = 2 * LINK_US + rows * self.width * 2 / (1e3 * LINK_GB_PER_S)
        shared_us = (2 * self.layers + 1) * message_us
        if self.ranks > 1:  # an all-gather and a reduce-scatter, and the busiest device's experts
            reached = 128 * (1 - (1 - 8 / 128) ** rows) / 2
            shared_us = self.layers * (message_us + experts_us(IMBALANCE * rows, reached))
        ends = max(once_us(one.rows) + head_us(one.sequences) for one in busy)
        return 1e-6 * np.array([
            max(self.layers * (layer_us(one.rows) + attended_us(one, step)) for one in busy)
            + shared_us + ends
            for step in range(steps)
        ])  # fmt: skip


def attended_us(shape: BatchShape, step: int) -> float:
    decodes = shape.decode_sequences
    context = (shape.decode_context_tokens + step * shape.decode_growing) / max(1, decodes) - 1
    rows, start = as_one_chunk(shape.prefill_chunks) if shape.prefill_chunks else (0.0, 0.0)
    return attention_us(rows, start, decodes, context if decodes else 0.0)


def record(path: Path, truth: Truth) -> Path:
    """Write the stamps of an engine that served 60 requests, 6 to a second."""
    rng = np.random.default_rng(3)
    arrivals_s = np.cumsum(rng.exponential(1 / 6, 60))
    requests = [
        Request(str(i), float(at_s), int(rng.integers(50, 900)), int(rng.integers(20, 90)))
        for i, at_s in enumerate(arrivals_s)
    ]
    config = PolicyConfig(**{**find_preset("vllm-v1").policies, **LIMITS, "max_model_len": 4096})
    pool = Pool(config, truth, ranks=truth.ranks)
    frame = simulate_cluster(requests, [pool], RouterConfig("vllm-dp")).requests
    rows = frame.assign(
        arrival_s=frame["scheduled_s"], scheduled_s=frame["scheduled_s"] + frame["queue_s"]
    )
    columns = ["request_id", "arrival_s", "scheduled_s", "first_token_s", "last_token_s"]
    path.write_text(
        rows[[*columns, "prompt_tokens", "output_tokens"]].to_json(orient="records", lines=True)
    )
    return path


@pytest.fixture(scope="module")
def expert_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with dense layers of one and two GPUs, and experts of a device of two."""
    folder = write_bundle(write_bundle(tmp_path_factory.mktemp("moe") / "layers"), ranks=2)
    counts = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2560]
    reached = [1, 4, 8, 16, 24, 32, 40, 48, 56, 64]
    rows = [(2, n, e, experts_us(n, e)) for n, e in product(counts, reached)]
    columns = ["ep", "tokens", "activated_experts", "time_us"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "tp1" / "moe.csv", index=False)
    return folder


def verified(recorded: Path, layers: Path, *options: object) -> dict[str, float]:
    done = servetwin(
        "verify",
        "--recorded",
        recorded,
        "--times",
        f"layers:{layers}",
        *options,
        *SETTINGS,
        "--json",
    )
    assert done.code in (0, 3), "with so few requests it may not be able to tell"
    metrics = json.loads(done.out)["metrics"]
    return {name: abs(metrics[name]["mean"]["error"]) for name in ("ttft_s", "tpot_s", "e2e_s")}


def test_a_run_with_tensor_parallel_is_predicted(tmp_path: Path) -> None:
    recorded = record(tmp_path / "measured.jsonl", Truth(32, 4096, 1))
    layers = write_bundle(tmp_path / "layers", ranks=2)
    server = ("--model", "llama-3.1-8b", "--layout", "tp=2", *LINK)
    assert max(verified(recorded, layers, *server).values()) < 0.005


def test_a_run_of_ranks_that_share_experts_is_predicted(
    tmp_path: Path, expert_layers: Path
) -> None:
    recorded = record(tmp_path / "measured.jsonl", Truth(48, MOE.width, 2))
    server = ("--model", "qwen3-30b-a3b", "--layout", "dp=2,ep=2", *LINK)
    right = verified(recorded, expert_layers, *server, "--imbalance", IMBALANCE)
    assert max(right.values()) < 0.005
    by_chance = verified(recorded, expert_layers, *server)
    assert by_chance["tpot_s"] > 0.01


def test_layouts_that_a_bundle_cannot_tell_are_refused(tmp_path: Path, expert_layers: Path) -> None:
    recorded = record(tmp_path / "measured.jsonl", Truth(48, MOE.width, 2))
    server = (
        "verify",
        "--recorded",
        recorded,
        "--times",
        f"layers:{expert_layers}",
        "--model",
        "qwen3-30b-a3b",
    )
    assert "tp1/moe.csv, of whole ones: --layout tp=2,ep=2" in refused(
        *server, "--layout", "tp=2", *LINK
    )
    assert "layer times of 2 ranks hold no messages" in refused(*server, "--layout", "dp=2,ep=2")
    assert "--layout: ep=3 does not divide" in refused(*server, "--layout", "dp=2,ep=3", *LINK)
