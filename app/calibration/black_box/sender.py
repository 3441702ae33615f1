"""Send a burst to a live endpoint and keep what its clients saw."""

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import httpx
import numpy as np
import pandas as pd

from servetwin.loadtest.dialects.dialect import count
from servetwin.loadtest.dialects.server_probe import fields_of
from servetwin.loadtest.endpoint import Endpoint, client_settings
from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.sim.step_times.black_box_steps import ObservedRequest, observed_steps
from servetwin.sim.step_times.fit import fit_line
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

ROUND_TRIPS = 10
# Lengths of the prompts that ask a server for its count of their tokens.
PROBED_WORDS = (4, 12, 36, 108)
PROBE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Burst:
    """Answers in the order of the requests (no stamps for a failed one), and the failures.

    ``messages`` has the first message of each kind of failure (``loadtest.http.exchange.Failure``);
    ``shorter`` counts answers that ended before the asked length, ``without_usage`` answers whose
    stream had no usage, ``tokens_per_event`` is how many tokens came together in one event.
    ``probes`` requests were sent beside those of the burst.
    """

    answers: list[ObservedRequest]
    messages: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    shorter: int = 0
    without_usage: int = 0
    tokens_per_event: float = 1.0
    probes: int = 0

    @property
    def retry_after_s(self) -> float | None:
        """How long a refusing server wants the client to wait, in seconds."""
        match = re.search(r"Retry-After: (\d+(\.\d+)?)", self.messages.get("http_429", ""))
        return float(match[1]) if match else None


# Takes requests and how long to wait for their answers (seconds).
SendBurst = Callable[[Sequence[Request], float], Burst]


class Sender(Protocol):
    """Sends requests, each at its time, and waits for all answers."""

    def __call__(self, requests: Sequence[Request], timeout_s: float) -> Burst:
        """Return every answer, or why there is none."""

    def in_words(self, request: Request) -> Request:
        """Return the request that the server will count as long as this one."""

    def prompts_note(self) -> str | None:
        """How long prompts of text are, and how that is known; None where token ids are sent."""

    def round_trip_s(self) -> float:
        """How long a small request takes that reaches no scheduler."""


class LiveSender:
    """Sends over HTTP; one salt for all, since an experiment sends the same prefixes twice.

    Prompts of text are sent in words and counted as the server counts them: by the usage of their
    streams, else by the usage of a few answers that are not streamed.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint.salted()
        # Pairs of words sent and prompt tokens counted by the server.
        self._counts: list[tuple[int, float]] = []
        self._counted_by = ""

    def __call__(self, requests: Sequence[Request], timeout_s: float) -> Burst:
        """Send the requests as a load test of their own."""
        worded = [self.in_words(request) for request in requests]
        options = LoadOptions(timeout_s=timeout_s, lead_s=0.02)
        run = run_load_test(self._endpoint, Trace(tuple(worded), "burst"), options=options)
        rows = run.requests.set_index("request_id").loc[[r.request_id for r in worded]]
        finished = rows[rows["status"] == "finished"]
        without_usage = finished["tokens_from"] != "usage"
        probes = self._learn_lengths(worded, finished)
        delivered = run.extra["delivered"]
        events = int(finished["chunk_s"].map(len).sum())
        return Burst(
            answers=[self._answer(row) for _, row in rows.iterrows()],
            messages=delivered["first_messages"],
            interrupted=delivered["interrupted"],
            shorter=int((finished["output_tokens"] < finished["asked_output_tokens"]).sum()),
            without_usage=int(without_usage.sum()),
            tokens_per_event=float(finished["output_tokens"].sum()) / events if events else 1.0,
            probes=probes,
        )

    def prompts_note(self) -> str | None:
        """How long prompts of text are, and how that is known; None where token ids are sent."""
        if self._endpoint.prompt == "ids":
            return None
        if not self._counts:
            return "prompts are text, and nothing tells their length: a word is taken for a token"
        constant, per_word = self.token_line()
        line = f"{per_word:.2f} tokens per word and {constant:.1f} more"
        return f"prompts are text of {line}, as {self._counted_by} tells"

    def in_words(self, request: Request) -> Request:
        """The request that the server will count as long as this one."""
        if self._endpoint.prompt == "ids" or not self._counts:
            return request
        constant, per_word = self.token_line()
        words = max(1, round((request.prompt_tokens - constant) / per_word))
        return replace(request, prompt_tokens=words)

    def token_line(self) -> tuple[float, float]:
        """Return the prompt tokens that the server counts: a constant, and those per word sent."""
        constant, per_word = fit_line(self._counts)
        return (constant, per_word) if per_word > 0 else (0.0, 1.0)

    def round_trip_s(self) -> float:
        """Median time of ``GET /v1/models``, which no scheduler sees; 0 once the server is gone."""
        took_s = []
        settings = client_settings(self._endpoint.base_url, insecure=self._endpoint.insecure)
        with httpx.Client(timeout=10, **settings) as client, suppress(httpx.TransportError):
            for _ in range(ROUND_TRIPS):
                began_s = time.perf_counter()
                client.get(f"{self._endpoint.base_url}/models")
                took_s.append(time.perf_counter() - began_s)
        return float(np.median(took_s)) if took_s else 0.0

    def _learn_lengths(self, worded: Sequence[Request], finished: pd.DataFrame) -> int:
        """Note what the server counted; where no usage tells it, ask once. Return requests sent."""
        counted = finished[finished["tokens_from"] == "usage"]
        if len(counted):
            words = {request.request_id: request.prompt_tokens for request in worded}
            tokens = counted["prompt_tokens"].items()
            self._counts += [(words[str(name)], float(number)) for name, number in tokens]
            self._counted_by = "the usage"
        elif len(finished) and not self._counted_by and self._endpoint.prompt == "text":
            self._counts = count_prompts(self._endpoint)
            self._counted_by = "the usage of answers that are not streamed"
            return len(PROBED_WORDS)
        return 0

    def _answer(self, row: pd.Series) -> ObservedRequest:
        stamps_s = tuple(row["chunk_s"].tolist()) if row["status"] == "finished" else ()
        prompt_tokens = int(row["prompt_tokens"])
        if row["tokens_from"] != "usage" and self._endpoint.prompt == "text":
            constant, per_word = self.token_line()
            prompt_tokens = max(1, round(constant + per_word * prompt_tokens))
        return ObservedRequest(
            sent_s=float(row["sent_s"]),
            prompt_tokens=prompt_tokens,
            stamps_s=stamps_s,
            cached_tokens=int(row["cached_tokens"]),
        )


def count_prompts(endpoint: Endpoint) -> list[tuple[int, float]]:
    """Return pairs of words and prompt tokens, by the usage of whole answers of one token.

    Empty where whole answers have no usage either, or the API is not OpenAI's.
    """
    if endpoint.api == "native":
        return []
    settings = client_settings(endpoint.base_url, insecure=endpoint.insecure)
    with httpx.Client(timeout=PROBE_TIMEOUT_S, **settings) as client:
        counted = {words: _counted(client, endpoint, words) for words in PROBED_WORDS}
    return [(words, float(tokens)) for words, tokens in counted.items() if tokens]


def _counted(client: httpx.Client, endpoint: Endpoint, words: int) -> int | None:
    body = json.loads(endpoint.body(Request(f"words-{words}", 0.0, words, 1)))
    whole = {**body, "stream": False}
    whole.pop("stream_options", None)
    try:
        answer = client.post(endpoint.url, json=whole)
        return count(fields_of(fields_of(answer.json()).get("usage")).get("prompt_tokens"))
    except (httpx.HTTPError, ValueError):
        return None


# How often a burst is sent again when the server answers 429.
REFUSALS = 3
LEAST_LEFT_S = 1.0
# Of the time left that a burst may take before it is given up.
LONGEST_SHARE = 0.5


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
        self.bursts: list[Burst] = []
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
        self.bursts.append(burst)
        if keep:
            self._remember(burst.answers)
        return burst.answers

    def ttft_s(self, prompt_tokens: int) -> float:
        """Estimate the TTFT of a lone prompt, in seconds."""
        constant, slope = fit_line(self._lone)
        longest, took_s = max(self._lone, default=(0, 0.0))
        return max(constant + slope * prompt_tokens, took_s * prompt_tokens / max(1, longest))

    def itl_s(self, sequences: int) -> float:
        """Estimate the time of a step of ``sequences`` decodes, in seconds.

        Raises ``ProbeStopped`` when no two tokens of any answer came apart.
        """
        sizes = sorted(self._intervals)
        if not sizes:
            raise ProbeStopped(
                "the tokens of an answer come all at once: it does not stream", final=True
            )
        medians_s = [float(np.median(self._intervals[size])) for size in sizes]
        return float(np.interp(sequences, sizes, medians_s))

    def _named(self, requests: Sequence[BurstRequest]) -> list[Request]:
        tag = int(self.rng.integers(1 << 62))  # new names: prompts that no cache has seen
        named = []
        for number, (prompt, output, at_s, prefix) in enumerate(requests):
            blocks = ((), None) if prefix is None else ((prefix,), prompt)
            named.append(Request(f"black-box-{tag}-{number}", at_s, prompt, output, *blocks))
        return named

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
        for before, step in pairwise(observed_steps(answers)):
            took_s = step.end_s - before.end_s  # 0: two tokens came in one read of the client
            if took_s > 0 and before.stamps_s.keys() == step.stamps_s.keys():
                self._intervals.setdefault(len(step.stamps_s), []).append(took_s)


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
