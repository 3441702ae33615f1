"""A core that cannot be built says why."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.models.computation import Computation
from engine.serve_options import ServeOptions
from policies.config import PolicyConfig
from workloads.errors import ServetwinError

POLICIES = PolicyConfig(kv_tokens=4096, max_model_len=2048, max_seqs=4)


TINY = ServeOptions(model="tiny", policies=POLICIES, port=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bas"}, "unknown model 'bas': did you mean 'base'?"),
        ({"computation": Computation(device="tpu")}, "unknown device 'tpu'"),
        ({"computation": Computation(dtype="float8")}, "unknown dtype 'float8'"),
        (
            {"policies": replace(POLICIES, batching="statik")},
            "batching: unknown scheduler 'statik'",
        ),
        (
            {"policies": replace(POLICIES, kv="contiguous", kv_tokens=1024)},
            "kv_tokens: even the shortest request needs a region of 2048 KV tokens",
        ),
        (
            {"policies": replace(POLICIES, max_model_len=1 << 18)},
            "max_model_len: 262144 is longer than the 131072 tokens of model tiny",
        ),
        (
            {"policies": replace(POLICIES, one_row_chunk="prefill")},
            "one_row_chunk 'prefill' is simulated only; the bundled engine computes one row of a "
            "prompt as it does a decode, use one_row_chunk: decode",
        ),
        (
            {"policies": replace(POLICIES, recompute="computed")},
            "recompute 'computed' is simulated only; the bundled engine computes a preempted "
            "prompt from the beginning, use recompute: all",
        ),
        ({"policies": replace(POLICIES, kv_tokens=1 << 50)}, "no room for"),
        ({"step_log": Path("/nowhere/steps.jsonl")}, "step log /nowhere/steps.jsonl: No such file"),
    ],
)
def test_a_core_that_cannot_be_built_says_why(changes: dict[str, Any], message: str) -> None:
    from engine.core.build import build_core

    with pytest.raises(ServetwinError) as caught:
        build_core(replace(TINY, **changes))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
