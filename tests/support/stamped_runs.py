"""Load tests of a server that exists in the simulator alone, with a stamp for every token."""

from dataclasses import replace

import numpy as np
import pandas as pd

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.step_record import gaps_s
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.trace import Trace
from tests.support.report_runs import pretended


def stamped(trace: Trace, profile: Profile, policies: PolicyConfig | None = None) -> Run:
    """Load-test a server whose steps take what ``profile`` says, with its mean noise in each."""
    config = policies or profile.policy_config()
    scheduler = build_scheduler(config)
    fit = profile.step_time(scheduler.memory.layout)
    model = fit.scaled(float(np.mean(fit.noise))).model()
    recorder = Recorder(profile.api.model(), keep_records=True)
    if trace.lanes:
        run = simulate_cluster(trace, [Pool(config, model)], recorder=recorder, macro=False)
    else:
        run = simulate(trace, scheduler, model, recorder=recorder, macro=False)
    measured = pretended(run)
    stamps_s = token_stamps_s(run)
    ends_s = measured.requests["last_token_s"]
    measured.requests["chunk_s"] = pd.Series(
        [
            stamps_s[name] + (end_s - stamps_s[name][-1])
            for name, end_s in zip(measured.requests["request_id"], ends_s, strict=True)
        ],
        dtype=object,
    )
    if trace.lanes:
        columns = ["task", "turn", "endless_cached_tokens", "warm_up", "lane", "task_s"]
        rows = run.requests[[*columns, "cached_tokens"]]
        measured.requests = measured.requests.assign(**rows)
    measured.scenario["rate_per_s"] = trace.rate_per_s
    return replace(measured, records=run.records)


def token_stamps_s(run: Run) -> dict[str, np.ndarray]:
    """Return when the step of each token ended, by request id."""
    rows = run.requests[["request_id", "prompt_tokens"]].itertuples(index=False)
    prompts = {str(name): int(tokens) for name, tokens in rows}
    stamps: dict[str, list[float]] = {name: [] for name in prompts}
    for step, took_s in zip(run.records, gaps_s(run.records), strict=True):
        for name, start, tokens, _ in step.entries:
            if start + tokens >= prompts[name]:
                stamps[name].append(step.now_s + took_s)
    return {name: np.array(ended_s) for name, ended_s in stamps.items()}
