"""Two hundred scenarios and a digest of what the simulator makes of each, to the last bit.

``python -m tests.support.digest_scenarios`` writes the digests of the present code to
``tests/digests.json``: a change of results that is wanted shows there, scenario by scenario.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, get_args

from servetwin.policies import config as settings
from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import EVICTION_ORDERS, MEMORIES, ROUTERS, SCHEDULERS
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.records.metrics import REQUEST_COLUMNS
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import Profile, load_profile, shipped_profiles
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.techniques.registry import TECHNIQUES, find_technique
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.paths import KERNEL_PROFILES, ROOT, SHEET_PROFILE

FILE = ROOT / "tests" / "digests.json"
SERVERS, CLUSTERS = 110, 40
"""Scenarios of one server and of several; the others are one for each technique."""
LATER = ("vllm-dp", "kv-aware")
"""Routers that came later: what is drawn stays as it was."""


def scenarios() -> dict[str, Callable[[], str]]:
    """Return what makes the digest of each scenario, by the scenario's name."""
    servers = {f"server-{i}": lambda i=i: _server_digest(i) for i in range(SERVERS)}
    clusters = {f"cluster-{i}": lambda i=i: _cluster_digest(i) for i in range(CLUSTERS)}
    names = list(TECHNIQUES)
    techniques = {f"technique-{name}": lambda n=name: _technique_digest(n) for name in names}
    return {**servers, **clusters, **techniques}


def requests(random: Random, count: int) -> Trace:
    """Return requests with shared prefixes, turns, tenants, priorities and several samples."""
    made: list[Request] = []
    now_ms = 0
    for index in range(count):
        now_ms += random.choice([0, 3, 10, 50, 120, 400])
        prompt = random.choice([1, 7, 16, 40, 130, 513, 900])
        blocks = prompt // 16
        shared = random.randint(0, blocks)
        family = random.randint(1, 3)
        ids = [100 * family + j for j in range(shared)]
        ids += [10_000 * (index + 1) + j for j in range(blocks - shared)]
        follows = index > 5 and random.random() < 0.2
        made.append(
            Request(
                str(index), now_ms / 1000, prompt, random.choice([1, 2, 9, 33, 120]),
                tuple(ids), 16,
                session_id=str(index % 5),
                parent_ids=(str(index - 5),) if follows else (),
                delay_s=0.25 if follows else None,
                tenant=random.choice([None, "a", "b"]),
                priority=random.choice([0, 0, 1, -1]),
                samples=random.choice([1, 1, 1, 1, 2]),
                estimated_output_tokens=random.choice([None, 5, 50]),
            )
        )  # fmt: skip
    return Trace(tuple(made), "digest")


def policies(random: Random) -> PolicyConfig:
    """Return settings drawn from all choices; those that exclude each other are drawn anew."""
    while True:
        kv = random.choice(["paged", *MEMORIES])
        drawn: dict[str, Any] = {
            "batching": random.choice(list(SCHEDULERS)),
            "kv": kv,
            "prefix_cache": kv == "paged" and random.random() < 0.6,
            "eviction": random.choice(list(EVICTION_ORDERS)),
            "kv_tokens": random.choice([2_048, 4_096, 20_000]),
            "block_tokens": 16,
            "max_model_len": 2_048,
            "max_seqs": random.choice([2, 5, 16, 64]),
            "token_budget": random.choice([64, 256, 1_024]),
            "queue_limit": random.choice([None, None, 6]),
            "shed_ttft_s": random.choice([None, None, 2.0]),
            "long_prefill_tokens": random.choice([0, 0, 100]),
            "watermark": random.choice([0.0, 0.01]),
            "decodes_between_prefills": random.choice([0, 0, 3]),
            "host_kv_tokens": random.choice([0, 4_096]),
            **_choices(random),
        }
        unread = settings.unread_settings(drawn)
        try:
            return PolicyConfig(**{name: drawn[name] for name in drawn if name not in unread})
        except ServetwinError:
            continue


def _choices(random: Random) -> dict[str, Any]:
    """Return the settings that are a choice of words."""
    kinds = {
        "reservation": settings.Reservation, "rounding_waste": settings.Waste,
        "prefix_index": settings.PrefixIndex, "queue_order": settings.QueueOrder,
        "admission": settings.Admission, "prompt_blocks": settings.PromptBlocks,
        "watermark_rounding": settings.Rounding, "budget_count": settings.BudgetCount,
        "one_row_chunk": settings.ChunkKind, "preemption": settings.Preemption,
        "recompute": settings.Recompute, "victim": settings.Victim,
    }  # fmt: skip
    choices = {name: get_args(kind) for name, kind in kinds.items()}
    choices["prefix_index"] = ("radix", *choices["prefix_index"])  # as many as there once were
    return {name: random.choice(words) for name, words in choices.items()}


def _profile(random: Random, config: PolicyConfig) -> Profile:
    """Return a shipped profile that has step times for the layout of these policies."""
    kernels = {path.stem: str(path) for path in KERNEL_PROFILES.glob("*.json")}
    kernels["llama-3-8b-h100"] = SHEET_PROFILE
    names = sorted([*shipped_profiles(), *kernels]) if config.kv == "paged" else ["base-cpu"]
    name = random.choice(names)
    return load_profile(kernels.get(name, name))


def _server_digest(index: int) -> str:
    random = Random(index)
    config = policies(random)
    trace = requests(random, random.choice([5, 40, 120]))
    macro = random.random() < 0.8
    cluster = ClusterConfig(closed_loop=random.random() < 0.3)
    scenario = Scenario(config, _profile(random, config), cluster)
    return _digest(lambda: run_once(trace, scenario, seed=index, macro=macro, keep_usage=True))


def _cluster_digest(index: int) -> str:
    random = Random(1_000 + index)
    config = policies(random)
    profiles = [_profile(random, config) for _ in range(2)]
    splits = random.random() < 0.3
    cluster = ClusterConfig(
        replicas=random.choice([1, 2, 4]),
        router=random.choice([name for name in ROUTERS if name not in LATER]),
        staleness_s=random.choice([0.0, 0.5]),
        prefill_replicas=2 if splits else 0,
        decode_replicas=1 if splits else 0,
        closed_loop=random.choice([None, False]),
    )
    trace = requests(random, random.choice([40, 120]))
    scenario = Scenario(config, profiles[0], cluster, tuple(profiles[1:]))
    return _digest(lambda: run_once(trace, scenario, seed=index))


def _technique_digest(name: str) -> str:
    random = Random(name)
    model = "mixtral-8x7b" if "expert" in name else "llama-2-7b"
    setup = Setup.of(Deployment(find_model(model), find_hardware("h200")))
    trace = requests(random, 40)
    trace = replace(trace, requests=tuple(replace(r, samples=1) for r in trace.requests))
    return _digest(lambda: run_once(trace, find_technique(name).apply(setup).scenario(), seed=1))


def _digest(run: Callable[[], Run]) -> str:
    """Return a digest of all stamps and steps of a run, or the name of the error that ended it."""
    try:
        made = run()
    except ServetwinError as error:
        return type(error).__name__
    frames = (made.requests[[*REQUEST_COLUMNS]], made.steps, made.pauses, made.handovers)
    text = repr(
        [{name: frame[name].tolist() for name in sorted(map(str, frame))} for frame in frames]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: make() for name, make in scenarios().items()}, indent=1))
