"""A simulated server as the other end of a calibration: bursts go through ``sim.core.simulate``."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from servetwin.app.calibration.black_box.sender import Burst
from servetwin.app.calibration.step_log import sampling
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.black_box_steps import ObservedRequest
from servetwin.sim.step_times.profile import Profile
from servetwin.sim.step_times.step_time import ApiLatency, StepNoise
from servetwin.workloads.request import Request


class SimulatedSender:
    """Every burst meets an idle server; clients take their stamps a little late."""

    def __init__(
        self, config: PolicyConfig, profile: Profile, jitter_s: float = 1e-4, seed: int = 0
    ) -> None:
        self._config = config
        self._api = profile.api.model()
        self._fit = profile.step_time("paged")
        self._rng = np.random.default_rng(seed)
        self._jitter_s = jitter_s
        self.elapsed_s = 0.0
        self.requests = 0
        self.troubles: dict[int, Burst] = {}
        """Answers to the n-th burst instead of the server's own."""
        self._bursts = 0

    def clock(self) -> float:
        """Seconds that the bursts took."""
        return self.elapsed_s

    def __call__(self, requests: Sequence[Request], timeout_s: float) -> Burst:
        """Simulate them; those that are too long are bad requests."""
        self.requests += len(requests)
        self._bursts += 1
        if trouble := self.troubles.get(self._bursts):
            return trouble
        if any(r.total_tokens > self._config.max_model_len for r in requests):
            return Burst(
                [ObservedRequest(0.0, 0, ())] * len(requests), {"http_4xx": "HTTP 400: too long"}
            )
        staggered = [self._staggered(number, r) for number, r in enumerate(requests)]
        ordered = sorted(staggered, key=lambda r: r.arrival_s)
        noise = StepNoise(self._fit.noise_factors(), self._rng)
        run = simulate(
            ordered,
            build_scheduler(self._config),
            self._fit.model(),
            api=self._api,
            noise=noise,
            keep_records=True,
        )
        self.elapsed_s += float(run.requests["last_token_s"].max())
        return Burst(self._answers(staggered, run))

    def in_words(self, request: Request) -> Request:
        """Prompts are token ids."""
        return request

    def prompts_note(self) -> None:
        """Prompts are token ids."""

    def round_trip_s(self) -> float:
        """A fast network."""
        return 0.001

    def _staggered(self, number: int, request: Request) -> Request:
        return replace(request, arrival_s=request.arrival_s + 3e-4 * number)

    def _answers(self, requests: Sequence[Request], run: Run) -> list[ObservedRequest]:
        stamps_s = token_stamps_s(run, {r.request_id: r.prompt_tokens for r in requests}, self._api)
        cached = dict(zip(run.requests["request_id"], run.requests["cached_tokens"], strict=True))
        answers = []
        for request in requests:
            late_s = self._rng.exponential(self._jitter_s, len(stamps_s[request.request_id]))
            stamps = np.sort(np.array(stamps_s[request.request_id]) + late_s)
            answers.append(
                ObservedRequest(
                    request.arrival_s,
                    request.prompt_tokens,
                    tuple(stamps.tolist()),
                    int(cached[request.request_id]),
                )
            )
        return answers


def token_stamps_s(
    run: Run, prompt_tokens: dict[str, int], api: ApiLatency
) -> dict[str, list[float]]:
    """When the client had each token of each request."""
    stamps_s = defaultdict[str, list[float]](list)
    for step in run.records:
        end_s = step.now_s + step.duration_s + api.chunk_out_s(len(step.entries))
        for name in sampling(step, prompt_tokens):
            stamps_s[name].append(end_s)
    return stamps_s
