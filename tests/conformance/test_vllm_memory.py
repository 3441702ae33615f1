"""The KV memory of models with windows, chunks or states is what vLLM itself makes of it."""

import json
import subprocess
from typing import Any

import pytest

from servetwin.policies.kv.kv_groups import blocks_per_request, parse_groups
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.kv_pages import kv_pages
from servetwin.sim.catalogue.layers import Attention, Mixer, Recurrence
from servetwin.sim.catalogue.model import ModelShape
from tests.conformance.test_vllm import PYTHON
from tests.conformance.vllm import foreign_environment
from tests.support.paths import ROOT

MODELS = [
    "gpt-oss-20b", "gpt-oss-120b", "gemma-2-9b", "gemma-3-27b", "mistral-7b",
    "llama-4-scout-17b-16e", "exaone-4.0-32b", "qwen3-next-80b-a3b", "qwen3.5-27b",
    "nemotron-h-56b-base-8k", "nemotron-3-nano-30b-a3b",
]  # fmt: skip
ROOM_BYTES, ROWS = 40 * 10**9, 2 * 8192


def kept(mixer: Mixer) -> tuple[str, int, int]:
    """Return what a layer keeps, of how many tokens, and its elements of a token or in all."""
    if isinstance(mixer, Recurrence):
        return "state", 0, int(mixer.state_elements())
    window = mixer.window_tokens if isinstance(mixer, Attention) else None
    if window is None:
        return "full", 0, int(mixer.kv_elements())
    chunked = isinstance(mixer, Attention) and mixer.chunked
    return "chunk" if chunked else "window", window, int(mixer.kv_elements())


def longest(model: ModelShape) -> int:
    return min(model.max_model_len, 131_072)


def ours(name: str) -> list[int]:
    """Return (tokens of a block, blocks, tokens) in bf16, as a server's preset has them."""
    model = find_model(name)
    pages = kv_pages(model, 16, 2.0, 2.0)
    blocks, size = int(ROOM_BYTES // pages.block_bytes), pages.block_tokens
    groups = parse_groups(pages.groups, size, shares=True)
    each = blocks_per_request(groups, longest(model), ROWS, size)
    return [size, blocks, blocks * longest(model) // each]


@pytest.mark.foreign
@pytest.mark.timeout(600)
def test_the_kv_memory_of_ten_models_is_that_of_vllm() -> None:
    if subprocess.run([PYTHON, "-c", "import vllm.v1.core.sched"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no vllm")
    asked: list[dict[str, Any]] = []
    for name in MODELS:
        model = find_model(name)
        layers = [(*kept(group.mixer), group.count) for group in model.layers]
        limits = {"longest": longest(model), "rows": ROWS, "room_bytes": ROOM_BYTES}
        asked.append({**limits, "layers": layers})
    answered = subprocess.run(
        [PYTHON, "-m", "tests.conformance.vllm_memory"], input="\n".join(map(json.dumps, asked)),
        cwd=ROOT, env=foreign_environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in answered.stdout.splitlines()]
    assert dict(zip(MODELS, found, strict=True)) == {name: ours(name) for name in MODELS}
