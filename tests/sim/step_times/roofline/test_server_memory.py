"""Keys and values of servers of vLLM, against what they printed as they started."""

from dataclasses import replace

import pytest

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.kv_pages import kv_pages
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.operators import STATE_BYTES
from servetwin.sim.step_times.roofline.server import base_policies, memory_settings
from servetwin.sim.step_times.roofline.step_memory import ServerMemory

V0, V1 = 0.376e9, 1.01e9
"""Bytes outside PyTorch: 0.35 GiB as printed by version 0.6, and with the workspaces of 0.19."""
VISION = 48.5 - 47.03
"""GiB of loaded weights that are of no text."""
TOLERANCE = 0.03


@pytest.mark.parametrize(
    ("model", "device", "share", "runtime", "rows", "printed_gib"),
    [
        # a recorded run of vLLM 0.19: 2,588 blocks of 16 tokens
        ("llama-3.1-8b", "rtx-4090", 0.9, V1, 2048, 2588 * 16 * 131_072 / 2**30),
        # vllm-project/vllm issue 10517: 1952 blocks with --max-model-len 20000, 1478 with 29000
        ("llama-3.1-8b", "rtx-3090", 0.9, V0, 20_000, 1952 * 16 * 131_072 / 2**30),
        ("llama-3.1-8b", "rtx-3090", 0.9, V0, 29_000, 1478 * 16 * 131_072 / 2**30),
        # myoceane.fr, vLLM 0.19 on an A100, April 2026
        ("gpt-oss-20b", "a100-80gb", 0.65, V1, 2048, 36.56),
        ("gemma-4-26b-a4b", "a100-80gb", 0.9, V1, 2048, 21.5 + VISION),
    ],
)
def test_what_servers_printed(
    model: str, device: str, share: float, runtime: float, rows: int, printed_gib: float
) -> None:
    memory = ServerMemory(share, runtime, is_reported=True, is_profiled=True)
    server = Deployment(find_model(model), find_hardware(device), memory=memory)
    config = memory_settings(server, replace(base_policies(32_768), token_budget=rows))
    per_element = server.kv_bytes_per_token() / server.model.kv_elements_per_token()
    pages = kv_pages(server.model, 16, per_element, STATE_BYTES)
    kv_gib = config.kv_tokens / pages.block_tokens * pages.block_bytes / 2**30
    assert kv_gib == pytest.approx(printed_gib, rel=TOLERANCE)


def test_shares_of_what_is_left_and_without_steps() -> None:
    model, device = find_model("llama-3.1-8b"), find_hardware("h100")
    of_free = Deployment(model, device, memory=ServerMemory(free_share=0.9))
    whole = Deployment(model, device)
    static = Deployment(model, device, memory=ServerMemory(0.88, 0.0, holds_steps=False))
    free, all_of_it, pool = (
        memory_settings(one, base_policies(8192)).kv_tokens for one in (of_free, whole, static)
    )
    assert free == pytest.approx(0.9 * all_of_it, abs=1)
    room = 0.88 * device.memory_bytes - static.resident_weight_bytes()
    assert pool == int(room / static.kv_bytes_per_token())
