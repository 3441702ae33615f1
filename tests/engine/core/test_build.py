"""A core that cannot be built says why."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.models.computation import Computation
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import ServetwinError

POLICIES = PolicyConfig(kv_tokens=4096, max_model_len=2048, max_seqs=4)


TINY = ServeOptions(model="tiny", policies=POLICIES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bas"}, "unknown model 'bas'; did you mean 'base'?"),
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
            {
                "policies": replace(POLICIES, preemption="swap"),
                "computation": Computation(kv_cache=False),
            },
            "preemption 'swap': without a KV cache there is nothing to keep in host memory",
        ),
        (
            {
                "policies": replace(POLICIES, prefix_cache=True, host_cache_tokens=64),
                "computation": Computation(kv_cache=False),
            },
            "host_cache_tokens: without a KV cache there is nothing to keep in host memory",
        ),
        ({"policies": replace(POLICIES, kv_tokens=1 << 49)}, "no room for"),
        ({"policies": replace(POLICIES, adapter_slots=2)}, "adapter_slots is simulated only"),
        (
            {"policies": replace(POLICIES, preemption="swap", host_kv_tokens=1 << 49)},
            f"no room for {1 << 49} tokens in host memory",
        ),
        ({"step_log": Path("/nowhere/steps.jsonl")}, "step log /nowhere/steps.jsonl: No such file"),
    ],
)
def test_a_core_that_cannot_be_built_says_why(changes: dict[str, Any], message: str) -> None:
    from servetwin.engine.core.build import build_core

    with pytest.raises(ServetwinError) as caught:
        build_core(replace(TINY, **changes))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [{"tensor_parallel": 2}, {"kv_cache": False}, {"adapters": (("a", "/nowhere"),)}],
)
def test_early_exit_beside_what_it_does_not_go_with_is_refused(changes: dict[str, Any]) -> None:
    from servetwin.engine.core.build import build_core

    computation = Computation(exits=((0.5, 1.0),), **changes)
    with pytest.raises(ServetwinError, match=r"^early exit does not go together with "):
        build_core(replace(TINY, computation=computation))


DRAFTED = replace(
    TINY,
    policies=replace(POLICIES, draft_rows=2),
    computation=Computation(drafts=Drafts("model", (1, 1))),
)


@pytest.mark.parametrize(
    "drafts",
    [
        Drafts("model", (1, 1)),
        Drafts("model", (2,)),
        Drafts("layers", (1, 1)),
        Drafts("n-gram", (1, 1)),
    ],
)
def test_a_core_with_drafts_is_built_and_warmed_up(drafts: Drafts) -> None:
    from servetwin.engine.core.build import build_core

    _, facts = build_core(replace(DRAFTED, computation=Computation(drafts=drafts)))
    assert facts["runner"]["drafter"] == drafts.drafter


@pytest.mark.parametrize(
    ("policies", "drafts", "message"),
    [
        (
            {},
            Drafts(),
            "draft_rows 2 needs a drafter: --technique speculative:drafts=2 has one",
        ),
        (
            {},
            Drafts("n-gram", (1, 1, 1)),
            "drafts of 3 tokens a pass need draft_rows 3, not 2",
        ),
        (
            {"draft_rows": 0},
            Drafts("n-gram", (1, 1)),
            "drafts of 2 tokens a pass need draft_rows 2, not 0",
        ),
        ({"prompt_token": False}, Drafts("n-gram", (1, 1)), "prompt_token false is simulated only"),
        ({}, Drafts("model", (1, 1), model="base"), "draft model base has 32000 tokens"),
        ({}, Drafts("model", (1, 1), model="bas"), "unknown model 'bas'; did you mean 'base'?"),
        ({}, Drafts("model", (1, 1), model="/nowhere"), "model /nowhere: no such folder"),
    ],
)
def test_drafts_that_do_not_fit_are_refused(
    policies: dict[str, Any], drafts: Drafts, message: str
) -> None:
    from servetwin.engine.core.build import build_core

    given = replace(DRAFTED.policies, **policies)
    with pytest.raises(ServetwinError) as caught:
        build_core(replace(DRAFTED, policies=given, computation=Computation(drafts=drafts)))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
