"""Simulated runs that the tests of ``sim.explain`` explain."""

from pathlib import Path

import numpy as np
import pandas as pd

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.step_record import StepRecord
from servetwin.sim.core.recorder import STEP_COLUMNS
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.columns import stamps_of
from servetwin.sim.records.run import PAUSE_COLUMNS, Run
from servetwin.sim.step_times.profile import ApiLatencyFit, Profile, StepTimeFit
from servetwin.sim.step_times.step_time import ApiLatency, LinearStepTime
from servetwin.workloads.request import Request
from tests.support.checked import request

STORY_S = {"constant": 1.0, "prefill_chunks": 2.0}
STORY = [request("a", 0.0, 4, 5), request("b", 1.5, 4, 2)]
"""A step takes 1 s, and 2 s more for every prompt; b comes while a's prompt is computed."""

SERVER_S = {"constant": 0.002, "rows_from_0": 2e-5, "decode_context_tokens": 5e-8}
CONFIG = PolicyConfig(kv_tokens=2_048, max_seqs=16, token_budget=256)


STEPS = dict.fromkeys(STEP_COLUMNS, 0) | {"steps": 1, "free_kv_tokens": 100}


def write_profile(
    folder: Path, coefficients: dict[str, float], api: ApiLatency | None = None
) -> str:
    fitted = ApiLatencyFit()
    if api is not None:
        fitted = ApiLatencyFit(request_s=api.request_s, chunk_s=api.chunk_s)
    profile = Profile(
        name="test", origin="computed from data sheets", machine={}, engine={}, policies={},
        api=fitted,
        layouts={"paged": StepTimeFit(coefficients=coefficients)},
    )  # fmt: skip
    profile.save(folder / "test.json")
    return str(folder / "test.json")


def records_of(
    requests: list[Request], config: PolicyConfig, coefficients: dict[str, float]
) -> list[StepRecord]:
    model = LinearStepTime.of(coefficients)
    return simulate(requests, build_scheduler(config), model, keep_records=True).records


def pauses_of(records: list[StepRecord], ids: list[str]) -> pd.DataFrame:
    pauses, away = list[list[float]](), dict[str, float]()
    for record in records:
        for name in {entry[0] for entry in record.entries} & set(away):
            pauses.append([ids.index(name), away.pop(name), record.now_s])
        away |= dict.fromkeys(record.preempted, record.now_s)
    return pd.DataFrame(stamps_of(pauses, PAUSE_COLUMNS))


def simulated(
    requests: list[Request], config: PolicyConfig, coefficients: dict[str, float], profile: str = ""
) -> Run:
    """A run with all that an explanation reads; its pauses are read off the step records."""
    model = LinearStepTime.of(coefficients)
    run = simulate(requests, build_scheduler(config), model)
    records = records_of(requests, config, coefficients)
    run.pauses = pauses_of(records, [one.request_id for one in requests])
    run.scenario = {"policies": config.as_dict(), "profile": profile}
    return run


def random_requests(seed: int, count: int, rate_per_s: float) -> list[Request]:
    rng = np.random.default_rng(seed)
    arrivals_s = rng.exponential(1 / rate_per_s, count).cumsum()
    prompts, outputs = rng.integers(1, 300, count), rng.integers(1, 150, count)
    return [
        Request(f"r{i}", float(arrivals_s[i]), int(prompts[i]), int(outputs[i]))
        for i in range(count)
    ]
