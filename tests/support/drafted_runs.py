"""Simulations of decodes that verify drafts, every invariant checked at every step."""

from collections import Counter
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from servetwin.policies.batch import Batch, BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.policies.drafted_decodes import IntArray
from servetwin.policies.kv.paged import PagedKV
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Acceptance, Verifier
from servetwin.sim.step_times.roofline.deployment import Deployment, Drafting, Kernels, Offload
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.step_times.step_time import FloatArray, LinearStepTime, StepTime
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler
from tests.support.random_runs import STEP_TIME

_CHAIN = Drafting(find_model("llama-68m"), (1, 1))
_BESIDE = replace(_CHAIN, hardware=find_hardware("a100-80gb"))
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "drafts of nothing": {},
    "a model on the device": {"drafting": _CHAIN},
    "on another one": {"drafting": replace(_BESIDE, placement="other")},
    "overlapped": {"drafting": replace(_BESIDE, placement="overlapped")},
    "of few tokens": {"drafting": replace(_CHAIN, context_tokens=30)},
    "unsure": {"drafting": replace(_CHAIN, step_shares=(0.9, 0.7))},
    "unsure, of few tokens": {
        "drafting": replace(_CHAIN, step_shares=(0.9, 0.7), context_tokens=30)
    },
    "streamed weights": {"drafting": _CHAIN, "offload": Offload(resident_weights=0.5)},
    "a part of the target": {"drafting": replace(_CHAIN, is_part=True)},
    "stages": {"drafting": _CHAIN, "parallel": Parallel(tensor=2, pipeline=2)},
    "windows": {"drafting": _CHAIN, "model": find_model("mistral-7b")},
    "crowded": {"drafting": _CHAIN, "kernels": Kernels(occupancy="split")},
}
"""What differs between deployments that verify two drafts."""
ONE_SECOND = LinearStepTime.of({"constant": 1.0})
SMALL = PolicyConfig(kv_tokens=64, block_tokens=4, max_seqs=2, draft_rows=2, admission="full")


def verifying(name: str) -> StepTime:
    """Return the step times of one of ``DEPLOYMENTS``."""
    deployment = Deployment(find_model("llama-2-7b"), find_hardware("h100"))
    return roofline_step_time(replace(deployment, **DEPLOYMENTS[name]))


class ByShape:
    """A model of which a clock knows only what each shape takes, and no run of passes."""

    wants_contexts = True

    def __init__(self, model: StepTime) -> None:
        self._model = model

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        assert steps == 1
        return self._model.seconds(shape)


class Scripted:
    """Every answer gets these tokens, pass by pass; a draft of the last row ever after."""

    def __init__(self, *tokens: int, rows: int = 3, prompt_token: bool = True) -> None:
        self.tokens = tokens
        self.rows = rows
        self.prompt_token = prompt_token

    def passes(self, tokens: int) -> float:
        return float("nan")

    def emissions(
        self, rng: np.random.Generator, answers: int, first: int, passes: int
    ) -> IntArray:
        every = chain(self.tokens, repeat(self.rows))
        return np.array([list(islice(every, first, first + passes))] * answers)


def drafted_run(
    config: PolicyConfig,
    requests: list[Request],
    law: Acceptance,
    macro: bool = True,
    seed: int = 0,
    **more: Any,
) -> Run:
    """Every law at every step; nothing is left over at the end."""
    scheduler = RoomForDrafts(config)
    step_time = more.pop("step_time", STEP_TIME)
    verifier = Verifier(law, seed)
    run = simulate(requests, scheduler, step_time, macro=macro, verifier=verifier, **more)
    assert scheduler.load()[:2] == (0, 0)
    usage = scheduler.memory.usage([])
    assert usage.live_tokens == usage.reserved_tokens == usage.internal_waste_tokens == 0
    return run


class RoomForDrafts(CheckedScheduler):
    """Beyond the laws: the rows of all drafts lie in blocks that their sequence holds."""

    def schedule(self, now_s: float) -> Batch | None:
        batch = super().schedule(now_s)
        for entry in batch.entries[: batch.drafted] if batch else ():
            if isinstance(self.memory, PagedKV):
                group, held_tokens = entry.seq.lockstep, 0
                if group is not None:
                    held_tokens = group.granted_tokens(entry.seq)
                held_tokens = max(held_tokens, entry.seq.held.blocks * self.memory.block_tokens)
                assert entry.start + entry.tokens <= held_tokens
        return batch


def story(run: Run) -> list[str]:
    """One line per step: time, then ``id@start+tokens``."""
    return [
        f"{record.now_s:g} "
        + " ".join(f"{name}@{start}+{tokens}" for name, start, tokens, _ in record.entries)
        for record in run.records
    ]


def passes(run: Run) -> Counter[str]:
    """How many passes each request took after those of its prompt."""
    prompts = run.requests.set_index("request_id")["prompt_tokens"].to_dict()
    entries = (entry for record in run.records for entry in record.entries)
    return Counter(name for name, start, _, _ in entries if start >= prompts[name])
