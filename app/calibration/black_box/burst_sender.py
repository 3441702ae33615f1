"""Send the bursts of a calibration within limits of time and requests; wait for a busy server."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from servetwin.app.calibration.black_box.sender import Burst, SendBurst
from servetwin.sim.step_times.black_box_steps import ObservedRequest, observed_steps
from servetwin.sim.step_times.fit import fit_line
from servetwin.workloads.request import Request

REFUSALS = 3
"""How often a burst is sent again when the server answers 429."""
LEAST_LEFT_S = 1.0
LONGEST_SHARE = 0.5
"""Of the time left that a burst may take before it is given up."""


class ProbeStopped(Exception):
    """The reason why an experiment cannot go on; ``final``: no other can either."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class EndpointLost(ProbeStopped):
    """Ctrl-C, or an endpoint that is gone: the calibration ends with what it has."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, final=True)


class RequestRejected(ProbeStopped):
    """A request that the server calls bad (4xx) or answers with nothing: it may be too long."""


class BurstRequest(NamedTuple):
    """One request of a burst; prompts with the same ``prefix`` are the same."""

    prompt_tokens: int
    output_tokens: int
    at_s: float = 0.0
    prefix: int | None = None


@dataclass(slots=True)
class Allowance:
    """What a calibration may take; waiting for a busy server counts."""

    max_s: float
    max_requests: int
    used_s: float = 0.0
    used_requests: int = 0

    @property
    def left_s(self) -> float:
        """Seconds left."""
        return self.max_s - self.used_s

    @property
    def left_requests(self) -> int:
        """Requests left."""
        return self.max_requests - self.used_requests


class BurstSender:
    """Sends bursts and remembers them by round; estimates how long the next will take."""

    def __init__(
        self,
        send: SendBurst,
        allowance: Allowance,
        rng: np.random.Generator,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._send = send
        self._clock = clock
        self._sleep = sleep
        self.rng = rng
        self.allowance = allowance
        self.rounds: list[list[list[ObservedRequest]]] = [[]]
        self.shorter = 0
        self.without_usage = 0
        self.tokens_per_event = 1.0
        self._lone: list[tuple[int, float]] = []
        self._intervals: dict[int, list[float]] = {}

    def send(self, requests: Sequence[BurstRequest], keep: bool = True) -> list[ObservedRequest]:
        """Send a burst of new prompts as ``send_requests`` does."""
        return self.send_requests(self._named(requests), keep)

    def send_requests(
        self, requests: Sequence[Request], keep: bool = True
    ) -> list[ObservedRequest]:
        """Send requests and return the answers in their order; ``keep``: the fit may read them.

        Raises ``ProbeStopped`` when the allowance is used up, the server fails or Ctrl-C was
        pressed.
        """
        burst = self._patiently(requests)
        self.shorter += burst.shorter
        self.without_usage += burst.without_usage
        self.tokens_per_event = max(self.tokens_per_event, burst.tokens_per_event)
        if keep:
            self._remember(burst.answers)
        return burst.answers

    def ttft_s(self, prompt_tokens: int) -> float:
        """Estimate the TTFT of a lone prompt, in seconds."""
        constant, slope = fit_line(self._lone)
        longest = max((answer for answer in self._lone), default=(0, 0.0))
        return max(
            constant + slope * prompt_tokens, longest[1] * prompt_tokens / max(1, longest[0])
        )

    def itl_s(self, sequences: int) -> float:
        """Estimate the time of a step of ``sequences`` decodes, in seconds.

        Raises ``ProbeStopped`` when no two tokens of any answer came apart.
        """
        seen = sorted(self._intervals)
        if not seen:
            raise ProbeStopped(
                "the tokens of an answer come all at once: it does not stream", final=True
            )
        medians_s = [float(np.median(self._intervals[n])) for n in seen]
        return float(np.interp(sequences, seen, medians_s))

    def require_s(self, seconds: float, share: float, what: str) -> None:
        """Raise ``ProbeStopped`` where ``what`` would take more than ``share`` of the time left."""
        if seconds > share * self.allowance.left_s:
            left = f"{self.allowance.left_s:.0f} s of the time limit are left"
            raise ProbeStopped(f"{what} would take about {seconds:.0f} s; {left}")

    def _named(self, requests: Sequence[BurstRequest]) -> list[Request]:
        tag = int(self.rng.integers(1 << 62))  # new names: prompts that no cache has seen
        return [
            Request(
                f"black-box-{tag}-{number}",
                one.at_s,
                one.prompt_tokens,
                one.output_tokens,
                () if one.prefix is None else (one.prefix,),
                None if one.prefix is None else one.prompt_tokens,
            )
            for number, one in enumerate(requests)
        ]

    def _patiently(self, requests: Sequence[Request]) -> Burst:
        for attempt in range(REFUSALS + 1):
            burst = self._once(requests)
            if "http_429" not in burst.messages:
                return burst
            if attempt < REFUSALS:
                self._wait(burst.retry_after_s or 2.0**attempt)
        raise ProbeStopped(
            f"the server refused it {REFUSALS + 1} times ({burst.messages['http_429']})"
        )

    def _once(self, requests: Sequence[Request]) -> Burst:
        allowance = self.allowance
        if len(requests) > allowance.left_requests:
            raise ProbeStopped(
                f"it needs {len(requests)} requests and {allowance.left_requests} are left of "
                f"--max-requests {allowance.max_requests}"
            )
        if allowance.left_s < LEAST_LEFT_S:
            raise ProbeStopped(f"the time limit of {allowance.max_s:.0f} s was used up", final=True)
        began_s = self._clock()
        burst = self._send(requests, max(LEAST_LEFT_S, LONGEST_SHARE * allowance.left_s))
        allowance.used_s += self._clock() - began_s
        allowance.used_requests += len(requests) + burst.probes
        _check(burst)
        return burst

    def _wait(self, seconds: float) -> None:
        self.allowance.used_s += seconds
        if self.allowance.left_s < LEAST_LEFT_S:
            raise ProbeStopped(
                f"the server wants a wait of {seconds:g} s: longer than the time limit allows"
            )
        self._sleep(seconds)

    def _remember(self, answers: list[ObservedRequest]) -> None:
        self.rounds[-1].append(answers)
        if len(answers) == 1:
            self._lone.append((answers[0].prompt_tokens, answers[0].ttft_s))
        steps = observed_steps(answers)
        for before, step in pairwise(steps):
            if before.stamps_s.keys() == step.stamps_s.keys():
                self._took(len(step.stamps_s), step.end_s - before.end_s)

    def _took(self, sequences: int, seconds: float) -> None:
        if seconds > 0:  # else two tokens came in one read of the client
            self._intervals.setdefault(sequences, []).append(seconds)


def _check(burst: Burst) -> None:
    if burst.interrupted:
        raise EndpointLost("interrupted")
    for kind, message in burst.messages.items():
        if kind in ("http_4xx", "no_token"):
            raise RequestRejected(message)
        if kind == "connect":
            raise EndpointLost(f"the endpoint is gone ({message})")
        if kind != "http_429":
            raise ProbeStopped(f"requests failed: {kind} ({message})")
