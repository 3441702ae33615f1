"""Calibrate a running engine by its step log: send bursts, fit step time and API latency.

A burst sends some requests at once and waits for all of them. Bursts differ in size, prompt and
context length, so that the steps they cause span the shapes that a load may reach: lone decodes,
full batches, short and long chunks, chunks beside decodes. A round is all bursts once, in random
order; rounds repeat, so that the spread between them shows how far the machine drifts.

Bursts are not the load: after them a round sends a load of other requests with the lengths of the
trace that is to be predicted, so that its batches are measured and not extrapolated.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from servetwin.app.calibration import calibrator
from servetwin.app.scenario.options.engine import EngineChoice
from servetwin.app.serving.engines import LiveEngine, started_engine
from servetwin.engine.core.step_log import read_arrivals, read_step_log
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.run.client import run_load_test
from servetwin.loadtest.run.event_loop import signals_deferred
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.step_record import StepRecord, timed_steps
from servetwin.sim.experiments.decision_check import DecisionCheck, check_decisions
from servetwin.sim.records.run import Run, machine_facts
from servetwin.sim.step_times.fit import StepSample, fit_line, fit_step_time, in_beats
from servetwin.sim.step_times.machine_speed import MachineSpeed
from servetwin.sim.step_times.profile import ApiLatencyFit, Profile, StepTimeFit
from servetwin.sim.techniques.registry import Toggles
from servetwin.workloads.errors import EndedEarly, EngineError, ProfileError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

LONE_PROMPTS = (8, 40, 100, 250, 700, 2000, 6000)
# The most steps of the token budget that a lone prompt takes.
LONE_PROMPT_STEPS = 3
LONE_OUTPUTS = 12
GROUP_SIZES = (2, 4, 6, 8, 12, 16, 32, 64)
GROUP_PROMPTS = (12, 160)
GROUP_OUTPUTS = (8, 28)
# Requests, prompt and output tokens of the burst that reaches long contexts in a batch.
LONG_GROUP = (4, 500, 12)

# Drift of rounds that agree. Of 14 calibrations on a shared machine one was above 0.02: at 0.07
# its forecast was 4 % off.
AGREE = 0.025
LAYOUTS = ("paged", "contiguous")
NO_TECHNIQUES = Toggles()
CALIBRATED_BATCHING = ("continuous", "static")


@dataclass(frozen=True, slots=True)
class Observed:
    """The steps of a round, to fit, and the latencies of the HTTP process."""

    samples: list[StepSample]
    requests_in: list[tuple[int, float]]
    """(prompt tokens, seconds from send to scheduler) of requests that came to an idle engine."""
    chunks_out: list[tuple[int, float]]
    """(sequences of the step, mean seconds from the end of a step to its chunks)."""

    def timed(self, speed: MachineSpeed) -> "Observed":
        """Return the round with the beats around each of its steps."""
        moments_s = np.array([sample.at_s for sample in self.samples])
        beats_s = speed.beats_around(moments_s).tolist()
        samples = [
            replace(sample, beat_s=beat_s)
            for sample, beat_s in zip(self.samples, beats_s, strict=True)
        ]
        return replace(self, samples=samples)


def bursts(config: PolicyConfig, longest: int, rng: np.random.Generator) -> list[list[Request]]:
    """Return one round in random order; no request is longer than ``longest`` tokens."""
    longest_lone = min(longest - LONE_OUTPUTS, LONE_PROMPT_STEPS * config.token_budget)
    lone = [[(p, LONE_OUTPUTS)] for p in LONE_PROMPTS if p <= longest_lone]
    sizes = [size for size in GROUP_SIZES if size <= config.max_seqs]
    groups = [_group(size, longest, rng) for size in sizes]
    size, prompt, output = LONG_GROUP
    groups.append([(min(prompt, longest - output), output)] * min(size, config.max_seqs))
    round_ = [shapes for shapes in (*lone, *groups) if all(p > 0 for p, _ in shapes)]
    rng.shuffle(round_)
    tag = int(rng.integers(1 << 62))  # new names: prompts that no prefix cache has seen
    return [
        [Request(f"burst-{tag}-{b}-{i}", 0.0, p, o) for i, (p, o) in enumerate(shapes)]
        for b, shapes in enumerate(round_)
    ]


def _group(size: int, longest: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    prompts = rng.integers(*GROUP_PROMPTS, size=size)
    outputs = rng.integers(*GROUP_OUTPUTS, size=size)
    pairs = zip(prompts.tolist(), outputs.tolist(), strict=True)
    return [(min(p, longest - o), o) for p, o in pairs]


class StepLogCalibrator:
    """Runs rounds of bursts against one engine whose step log is a file on this machine."""

    stopped = None

    def __init__(
        self,
        engine: LiveEngine,
        seed: int = 0,
        report_progress: calibrator.ReportProgress = lambda _: None,
        prompt_salt: str | None = None,
    ) -> None:
        self.endpoint = probe(engine.url, salt=prompt_salt).salted()
        self.header = engine.header()
        self.config = resolved_policies(self.header)
        _require_plain_decodes(self.config)
        self.rounds: list[Observed] = []
        self._step_log = engine.step_log
        self._rng = np.random.default_rng(seed)
        self._report_progress = report_progress
        self._bursts = 0

    def identify(self, rounds: int, trace: Trace | None = None) -> None:
        """Run ``rounds`` rounds; the step log's header states the policies.

        After its bursts a round sends a load of other requests with the lengths of ``trace``, near
        the capacity that is known by then: the batches that the forecast will meet. Where the
        rounds disagree by more than ``AGREE``, up to as many follow. Raises ``EngineError`` when
        the engine fails a request.
        """
        for number in range(1, 2 * rounds + 1):
            if number > rounds and self._drift() <= AGREE:
                break
            self.run_round(f"round {number} of {max(number, rounds)}: bursts of all shapes")
            if trace is not None:
                self._run_load(trace)

    def _drift(self) -> float:
        return max(fit.drift for fit in self.profile().layouts.values())

    def run_round(self, label: str) -> None:
        """Send every burst once.

        Raises ``EngineError`` when the engine fails a request.
        """
        self._report_progress(f"calibrating: {label}")
        self.rounds.append(Observed([], [], []))
        longest = min(self.config.max_model_len, self.config.kv_tokens)
        for burst in bursts(self.config, longest, self._rng):
            self._run_burst(burst, self.rounds[-1])

    def _run_load(self, trace: Trace) -> None:
        """Send requests drawn from ``trace`` near its capacity, and add their steps to the round.

        Their API latency is left out: chunks of different steps may reach a client together.
        """
        rate_per_s = calibrator.load_rate_per_s(trace, self.profile())
        load = calibrator.representative_load(trace, rate_per_s, calibrator.LOAD_S, self._rng)
        self._report_progress(
            f"calibrating: {len(load)} requests like those of the trace, at {rate_per_s:.2f}/s"
        )
        before, round_ = len(read_step_log(self._step_log)[1]), len(self.rounds)
        _require_finished(run_load_test(self.endpoint.salted("load", round_), load))
        steps = read_step_log(self._step_log)[1][before:]
        samples = step_samples(steps, round_ - 1, self._next_burst())
        self.rounds[-1].samples.extend(replace(sample, in_load=True) for sample in samples)

    def profile(self, name: str = "calibrated") -> Profile:
        """Fit all rounds so far."""
        return make_profile(self.header, self.timed_rounds(), name)

    def timed_rounds(self) -> list[Observed]:
        """Return the rounds so far, each step with the beats around it."""
        speed = MachineSpeed.of(read_step_log(self._step_log)[1])
        return [observed.timed(speed) for observed in self.rounds]

    def as_counted(self, trace: Trace) -> Trace:
        """The trace itself: prompts are sent as token ids."""
        return trace

    def server_log(self) -> calibrator.ServerLog:
        """Return the steps of the engine's whole life."""
        return calibrator.ServerLog(self.header["clock_zero_s"], read_step_log(self._step_log)[1])

    def check_decisions(self) -> DecisionCheck:
        """Replay the step log of the engine's whole life, calibration included."""
        log = read_step_log(self._step_log)[1]
        return check_decisions(read_arrivals(self._step_log), self.config, log)

    def _run_burst(self, burst: list[Request], observed: Observed) -> None:
        before = len(read_step_log(self._step_log)[1])
        trace = Trace(tuple(burst), "calibration burst")
        run = run_load_test(self.endpoint, trace, options=calibrator.AT_ONCE)
        _require_finished(run)
        steps = _settled_steps(self._step_log, before, run)
        observed.samples.extend(step_samples(steps, len(self.rounds) - 1, self._next_burst()))
        self._observe_api(run, steps, observed)

    def _next_burst(self) -> int:
        self._bursts += 1
        return self._bursts

    def _observe_api(self, run: Run, steps: list[StepRecord], observed: Observed) -> None:
        zero_s = run.meta["clock_zero_perf_counter_s"] - self.header["clock_zero_s"]
        requests = run.requests.set_index("response_id")
        if len(requests) == 1:
            lone = run.requests.iloc[0]
            sent_s = zero_s + float(lone["sent_s"])
            arrived_s = read_arrivals(self._step_log)[-1].arrival_s
            observed.requests_in.append((int(lone["prompt_tokens"]), arrived_s - sent_s))
        prompts = _prompt_tokens(run)
        chunks_s = {name: iter(stamps + zero_s) for name, stamps in requests["chunk_s"].items()}
        for step, after in pairwise(steps):
            stamps = [next(chunks_s[name]) for name in sampling(step, prompts)]
            if stamps and not after.idle_before:
                latency_s = float(np.mean(stamps)) - (after.now_s - after.beat_s)
                observed.chunks_out.append((len(step.entries), latency_s))


def _require_plain_decodes(config: PolicyConfig) -> None:
    """Raise ``EngineError`` where a step lasts as long as drafts take too: no fit tells them."""
    if config.draft_rows:
        raise EngineError(
            "calibration: this engine's decodes verify drafts, and a step lasts as long as the "
            "drafting takes as well; calibrate one without (draft_rows: 0): what a "
            "technique changes is predicted from that"
        )


def _require_finished(run: Run) -> None:
    if run.extra["delivered"]["interrupted"]:
        raise KeyboardInterrupt
    failed = run.requests[run.requests["status"] != "finished"]
    if len(failed):
        messages = run.extra["delivered"]["first_messages"]
        raise EngineError(f"calibration: the engine failed {len(failed)} requests: {messages}")


def _settled_steps(path: Path, before: int, run: Run) -> list[StepRecord]:
    """Return the steps of a burst; its tokens are out, but the log may lag a little behind them."""
    prompts = _prompt_tokens(run)
    expected = int(run.requests["output_tokens"].sum())
    for _ in range(50):
        steps = read_step_log(path)[1][before:]
        if sum(len(sampling(step, prompts)) for step in steps) >= expected:
            return steps
        time.sleep(0.02)
    raise EngineError(f"{path}: the step log does not show the {expected} tokens that were sent")


def _prompt_tokens(run: Run) -> dict[str, int]:
    """Prompt lengths by the engine's own request ids."""
    rows = run.requests[["response_id", "prompt_tokens"]].itertuples(index=False)
    return {str(name): int(tokens) for name, tokens in rows}


def sampling(step: StepRecord, prompt_tokens: Mapping[str, int]) -> list[str]:
    """Return the requests that got a token in a step of a run without preemption."""
    return [
        name
        for name, start, tokens, _ in step.entries
        if tokens and start + tokens >= prompt_tokens[name]
    ]


def step_samples(steps: list[StepRecord], round_: int, burst: int) -> list[StepSample]:
    """Return the steps of a burst with what the engine took for each."""
    return [
        StepSample(step.shape(), took_s, round_, burst, step.now_s, switches=switches)
        for step, took_s, switches in timed_steps(steps)
    ]


def resolved_policies(header: Mapping[str, Any]) -> PolicyConfig:
    """The policies that a step log's header states, with the KV memory that the engine has."""
    return PolicyConfig(**{**header["policies"], "kv_tokens": header["kv_tokens"]})


def make_profile(header: Mapping[str, Any], rounds: Sequence[Observed], name: str) -> Profile:
    """Fit rounds on the engine that the header of its step log describes."""
    config = resolved_policies(header)
    layout = build_scheduler(config).memory.layout
    samples, beat_s = in_beats([sample for observed in rounds for sample in observed.samples])
    return Profile(
        name=name,
        origin="measured here",
        machine=machine_facts(),
        engine=header["runner"],
        policies=config.as_dict(),
        layouts={layout: StepTimeFit.of(fit_step_time(samples))},
        api=_fit_api(rounds),
        beat_s=beat_s,
    )


def _fit_api(rounds: Sequence[Observed]) -> ApiLatencyFit:
    """Fit robust lines: request latency over prompt tokens, chunk latency over sequences."""
    request_s, per_token_s = fit_line([pair for one in rounds for pair in one.requests_in])
    chunk_s, per_sequence_s = fit_line([pair for one in rounds for pair in one.chunks_out])
    return ApiLatencyFit(
        request_s=request_s,
        request_per_token_s=per_token_s,
        chunk_s=chunk_s,
        chunk_per_sequence_s=per_sequence_s,
    )


def calibrate_bundled(
    base: PolicyConfig,
    engine: EngineChoice,
    rounds: int,
    name: str,
    report_progress: calibrator.ReportProgress,
    prompt_salt: str | None = None,
    toggles: Toggles = NO_TECHNIQUES,
) -> Profile:
    """Calibrate static and continuous batching over both KV layouts; one profile of all.

    The engine has its techniques off and on as ``toggles`` say, which may change the policies too.
    ``rounds`` run on each server. The API latency is that of the first layout. Ctrl-C ends it with
    the layouts that have steps enough (``Profile.ended_early``); raises ``EndedEarly`` where none
    has.
    """
    headers: dict[str, Mapping[str, Any]] = {}
    observed = defaultdict[str, list[Observed]](list)
    ended_early, profiles = None, list[Profile]()
    try:
        for layout, batching in product(LAYOUTS, CALIBRATED_BATCHING):
            config = base.changed(batching=batching, kv=layout, prefix_cache=False)
            report_progress(f"calibrating {config.name}")
            options = replace(engine.options(config, toggles), beat=True)
            with started_engine(options) as live:
                calibrator = StepLogCalibrator(live, engine.seed, prompt_salt=prompt_salt)
                headers[layout] = calibrator.header
                try:
                    calibrator.identify(rounds)
                finally:
                    observed[layout] += calibrator.timed_rounds()
    except KeyboardInterrupt:
        ended_early = "interrupted"
    with signals_deferred():
        for layout, header in headers.items():
            try:
                profiles.append(make_profile(header, observed[layout], name))
            except ProfileError:
                if not ended_early:
                    raise
    if not profiles:
        raise EndedEarly("calibration: interrupted before there were steps enough for a profile")
    profiles[0].policies["batching"] = "continuous"
    layouts = {layout: fit for profile in profiles for layout, fit in profile.layouts.items()}
    return profiles[0].model_copy(update={"layouts": layouts, "ended_early": ended_early})
