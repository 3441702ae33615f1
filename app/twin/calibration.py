"""Calibrate a running engine: drive it with bursts, read its step log, fit step time and API.

A burst sends some requests at once and waits for all of them. Bursts differ in size, prompt and
context length, so that the steps they cause span the shapes that a load may reach: lone decodes,
full batches, short and long chunks, chunks beside decodes. A round is all bursts once, in random
order; rounds repeat and may be interleaved with load tests, so a drifting machine cannot pose as
an error of the model.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from engine.core.step_log import read_arrivals, read_step_log
from loadtest.endpoint import Endpoint
from loadtest.run.client import LoadOptions, run_load_test
from policies.config import PolicyConfig
from policies.step_record import StepRecord
from sim.records.run import Run
from sim.step_times.fit import StepSample, fit_line
from sim.step_times.profile import ApiLatencyFit
from workloads.errors import EngineError
from workloads.request import Request
from workloads.trace import Trace

LONE_PROMPTS = (8, 40, 100, 250, 700, 2000, 6000)
LONE_PROMPT_STEPS = 3
"""A lone prompt takes at most so many steps of the token budget."""
LONE_OUTPUTS = 12
GROUP_SIZES = (2, 4, 6, 8, 12, 16, 32, 64)
GROUP_PROMPTS = (12, 160)
GROUP_OUTPUTS = (8, 28)
LONG_GROUP = (4, 500, 12)
"""Requests, prompt and output tokens of the burst that reaches long contexts in a batch."""

_AT_ONCE = LoadOptions(lead_s=0.02)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a round of bursts showed: steps to fit, and latencies of the HTTP process."""

    samples: list[StepSample]
    requests_in: list[tuple[int, float]]
    """(prompt tokens, seconds from send to scheduler) of requests that came to an idle engine."""
    chunks_out: list[tuple[int, float]]
    """(sequences of the step, mean seconds from the end of a step to its chunks)."""


def bursts(config: PolicyConfig, longest: int, rng: np.random.Generator) -> list[list[Request]]:
    """One round in random order; no request is longer than ``longest`` tokens."""
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


class Calibrator:
    """Runs rounds of bursts against one engine whose step log can be read here."""

    def __init__(
        self,
        endpoint: Endpoint,
        step_log: Path,
        config: PolicyConfig,
        clock_zero_s: float,
        seed: int = 0,
    ) -> None:
        self._endpoint = endpoint
        self._step_log = step_log
        self._config = config
        self._clock_zero_s = clock_zero_s
        self._rng = np.random.default_rng(seed)
        self._round = 0

    def run_round(self, on_progress: Callable[[int], None] | None = None) -> Observed:
        """Every burst once; ``on_progress`` is told how many are done.

        Raises ``EngineError`` when the engine answers a burst with errors.
        """
        observed = Observed([], [], [])
        longest = min(self._config.max_model_len, self._config.kv_tokens)
        for done, burst in enumerate(bursts(self._config, longest, self._rng), start=1):
            self._run_burst(burst, observed)
            if on_progress:
                on_progress(done)
        self._round += 1
        return observed

    def _run_burst(self, burst: list[Request], observed: Observed) -> None:
        seen = len(read_step_log(self._step_log)[1])
        trace = Trace(tuple(burst), "calibration burst")
        run = run_load_test(self._endpoint, trace, options=_AT_ONCE)
        if run.extra["delivered"]["interrupted"]:
            raise KeyboardInterrupt
        failed = run.requests[run.requests["status"] != "finished"]
        if len(failed):
            messages = run.extra["delivered"]["first_messages"]
            raise EngineError(f"calibration: the engine failed {len(failed)} requests: {messages}")
        steps = _settled_steps(self._step_log, seen, run)
        observed.samples.extend(step_samples(steps, self._round))
        self._observe_api(run, steps, observed)

    def _observe_api(self, run: Run, steps: list[StepRecord], observed: Observed) -> None:
        zero_s = run.meta["clock_zero_perf_counter_s"] - self._clock_zero_s
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
                latency_s = float(np.mean(stamps)) - after.now_s
                observed.chunks_out.append((len(step.entries), latency_s))


def _settled_steps(path: Path, seen: int, run: Run) -> list[StepRecord]:
    """The steps of a burst: all tokens are out, but the log may lag behind them a little."""
    prompts = _prompt_tokens(run)
    expected = int(run.requests["output_tokens"].sum())
    for _ in range(50):
        steps = read_step_log(path)[1][seen:]
        if sum(len(sampling(step, prompts)) for step in steps) >= expected:
            return steps
        time.sleep(0.02)
    raise EngineError(f"{path}: the step log does not show the {expected} tokens that were sent")


def _prompt_tokens(run: Run) -> dict[str, int]:
    """Prompt lengths by the engine's own request ids."""
    rows = run.requests[["response_id", "prompt_tokens"]].itertuples(index=False)
    return {str(name): int(tokens) for name, tokens in rows}


def sampling(step: StepRecord, prompt_tokens: Mapping[str, int]) -> list[str]:
    """Requests that got a token in a step of a run without preemption."""
    return [
        name
        for name, start, tokens, _ in step.entries
        if tokens and start + tokens >= prompt_tokens[name]
    ]


def step_samples(steps: list[StepRecord], round_: int) -> list[StepSample]:
    """A step lasts until the next is decided; the last before a pause has no such end."""
    return [
        StepSample(step.shape(), after.now_s - step.now_s, round_)
        for step, after in pairwise(steps)
        if not after.idle_before
    ]


def pooled(rounds: list[Observed]) -> Observed:
    """The observations of several rounds as one."""
    return Observed(
        [sample for r in rounds for sample in r.samples],
        [request for r in rounds for request in r.requests_in],
        [chunk for r in rounds for chunk in r.chunks_out],
    )


def fit_api(observed: Observed) -> ApiLatencyFit:
    """Robust lines: request latency over prompt tokens, chunk latency over sequences."""
    request_s, per_token_s = fit_line(observed.requests_in)
    chunk_s, per_sequence_s = fit_line(observed.chunks_out)
    return ApiLatencyFit(
        request_s=request_s,
        request_per_token_s=per_token_s,
        chunk_s=chunk_s,
        chunk_per_sequence_s=per_sequence_s,
    )
