"""Calibrate an endpoint as a black box: its policies, its limits, its step times.

First the experiments that identify what kind of server it is, then rounds of bursts for the step
times, each with a load like that of the forecast, then the memory limit, which needs the step
times. Whatever stops early (time, requests, Ctrl-C, a
refusal) leaves what was learned until then.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import ceil

import httpx
import numpy as np

from servetwin.app.calibration.black_box.experiments import (
    LADDER,
    LONE_OUTPUTS,
    SMALL_PROMPT,
    find_batching,
    find_budget,
    find_context,
    find_filling,
    find_kv_tokens,
    find_max_seqs,
    find_prefix_cache,
)
from servetwin.app.calibration.black_box.identified_limits import IdentifiedLimits
from servetwin.app.calibration.black_box.sender import (
    Allowance,
    BurstRequest,
    BurstSender,
    EndpointLost,
    LiveSender,
    ProbeStopped,
    Sender,
)
from servetwin.app.calibration.calibrator import (
    LOAD_S,
    LOAD_UTILISATION,
    ReportProgress,
    load_rate_per_s,
    representative_load,
)
from servetwin.loadtest.endpoint import Endpoint
from servetwin.policies.build import build_scheduler
from servetwin.sim.records.run import machine_facts
from servetwin.sim.step_times.black_box_fit import BlackBoxFit, chunk_spread_s, fit_black_box
from servetwin.sim.step_times.black_box_steps import read_intervals
from servetwin.sim.step_times.profile import ApiLatencyFit, Profile, StepTimeFit
from servetwin.workloads.errors import EndedEarly, ProfileError
from servetwin.workloads.trace import Trace

MOST_AT_ONCE = 64
JOINING = (24, 60, 120, 240, 480)
LEAST_OUTPUTS = 6
# No burst may take more of the time left.
_SHARE = 0.15


def bursts(sender: BurstSender, limits: IdentifiedLimits) -> Iterator[list[BurstRequest]]:
    """Yield the bursts of one round, each planned with the times that earlier ones took."""
    size = _most_at_once(sender, limits)
    yield from _lone(sender, limits)
    if limits.identified.get("batching") == "static":
        yield from _equal(sender, limits, size)
        return
    yield _shrinking(sender, limits, size, SMALL_PROMPT)
    for runners in sorted({1, size // 2, size - 1} - {0}):
        yield _joined(sender, limits, runners)
    if long := _long_prompt(sender, limits, size):
        yield _shrinking(sender, limits, size, long)


def _most_at_once(sender: BurstSender, limits: IdentifiedLimits) -> int:
    max_seqs = int(limits.identified.get("max_seqs") or MOST_AT_ONCE)
    return max(1, min(max_seqs, MOST_AT_ONCE, sender.allowance.max_requests // 10))


def _lone(sender: BurstSender, limits: IdentifiedLimits) -> Iterator[list[BurstRequest]]:
    """A prompt of every size, each a little different in every round."""
    top = limits.longest - LONE_OUTPUTS
    for size in (*LADDER, top):
        prompt = min(top, max(1, round(size * sender.rng.uniform(0.7, 1.0))))
        if size <= top and sender.ttft_s(prompt) < _SHARE / 2 * sender.allowance.left_s:
            yield [BurstRequest(prompt, LONE_OUTPUTS)]


def _shrinking(
    sender: BurstSender, limits: IdentifiedLimits, size: int, prompt: int
) -> list[BurstRequest]:
    """A batch in which one request after the other ends: every number of decodes is seen."""
    room = limits.longest - prompt
    filling = ceil(size * prompt / limits.identified.get("token_budget", size * prompt))
    lengths = (LEAST_OUTPUTS + filling + 2 * i for i in range(size))
    prompts = sender.rng.integers(max(1, prompt // 2), prompt + 1, size=size).tolist()
    return [BurstRequest(p, max(2, min(room, n))) for p, n in zip(prompts, lengths, strict=True)]


def _long_prompt(sender: BurstSender, limits: IdentifiedLimits, size: int) -> int:
    """As long as a batch of them may be: for long contexts in full batches."""
    prompt = limits.longest // 2
    while prompt > 2 * SMALL_PROMPT:
        if size * sender.ttft_s(prompt) < _SHARE * sender.allowance.left_s:
            return prompt
        prompt //= 2
    return 0


def _joined(sender: BurstSender, limits: IdentifiedLimits, runners: int) -> list[BurstRequest]:
    """Prompts of all sizes, one at a time, into a batch that decodes."""
    itl_s = sender.itl_s(runners)
    at_s = 2 * sender.ttft_s(SMALL_PROMPT * runners) + 3 * itl_s
    newcomers = []
    longest = limits.longest - 3
    for size in (*JOINING, longest):
        prompt = min(longest, round(size * sender.rng.uniform(0.7, 1.0)))
        if size <= longest and sender.ttft_s(prompt) < _SHARE / 4 * sender.allowance.left_s:
            newcomers.append(BurstRequest(max(1, prompt), 3, at_s))
            at_s += 1.5 * sender.ttft_s(prompt) + 5 * itl_s
    outputs = max(2, min(ceil(at_s / itl_s), limits.longest - SMALL_PROMPT))
    return [*[BurstRequest(SMALL_PROMPT, outputs)] * runners, *newcomers]


def _equal(
    sender: BurstSender, limits: IdentifiedLimits, size: int
) -> Iterator[list[BurstRequest]]:
    """Batches of equal requests: a static batch holds no row beyond the end of its request."""
    sizes = sorted({n for n in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if n < size} | {size})
    for prompt in (SMALL_PROMPT, _long_prompt(sender, limits, size)):
        for n in sizes if prompt else ():
            yield [BurstRequest(prompt, min(8, limits.longest - prompt))] * n


# Of the time and the requests left, for the load of a round.
LOAD_SHARE = 0.2
# Of the context, where prompt lengths are known only when the server has counted them.
INEXACT_SHARE = 0.9


class BlackBoxCalibrator:
    """Learns one endpoint from what its clients see.

    Prompts of text are not counted exactly before they are sent: they keep away from the context
    limit that the endpoint states.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        allowance: Allowance,
        seed: int = 0,
        report_progress: ReportProgress = lambda _: None,
        *,
        sender: Sender | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint.salted()
        self.limits = IdentifiedLimits(longest=SMALL_PROMPT + LONE_OUTPUTS)
        if endpoint.max_model_len is not None:
            share = 1.0 if endpoint.prompt == "ids" else INEXACT_SHARE
            self.limits.longest = int(share * endpoint.max_model_len)
            self.limits.found(max_model_len=endpoint.max_model_len)
        self._client = sender or LiveSender(self.endpoint)
        rng = np.random.default_rng(seed)
        self._sender = BurstSender(self._client, allowance, rng, clock, sleep)
        self._seed = seed
        self._report_progress = report_progress
        self._ended: ProbeStopped | None = None

    @property
    def stopped(self) -> str | None:
        """What stopped the calibration: Ctrl-C, or an endpoint that is gone."""
        return str(self._ended) if isinstance(self._ended, EndpointLost) else None

    def identify(self, rounds: int, trace: Trace | None = None) -> None:
        """Run every experiment, ``rounds`` rounds of bursts, and find the memory limit.

        After its bursts a round sends a load of other requests with the lengths of ``trace``.

        Raises ``EndedEarly`` where the endpoint does not even answer a first request.
        """
        sender, limits = self._sender, self.limits
        self._warm_up()
        self._try("prompts of all lengths", lambda: find_context(sender, limits))
        self._try("the scheduler", lambda: find_batching(sender, limits), "batching")
        self._try("the token budget", lambda: find_budget(sender, limits), "token_budget")
        self._try("how steps are filled", lambda: find_filling(sender, limits))
        self._try("the batch limit", lambda: find_max_seqs(sender, limits), "max_seqs")
        self._try("the prefix cache", lambda: find_prefix_cache(sender, limits), "prefix_cache")
        for number in range(rounds):
            self.run_round(f"step times, round {number + 1} of {rounds}")
            if trace is not None:
                self._try("requests like those of the trace", partial(self._send_load, trace))
        self._try("the memory limit", self._find_kv, "kv_tokens")
        self._note_what_was_odd()

    def run_round(self, label: str) -> None:
        """Send all bursts of the fit once more, as far as the allowance goes."""
        self._sender.rounds.append([])
        self._try(label, self._run_bursts)

    def profile(self, name: str = "calibrated") -> Profile:
        """Return what was learned, read with the policies that were identified.

        The API's latency is what an idle server's first token takes beyond its steps: half of the
        round trip is taken for the way out, which no client can separate from the way in. Raises
        ``ProfileError`` where too few steps were seen, ``EndedEarly`` where the calibration was
        ``stopped`` before enough were.
        """
        fit = self._fit()
        if self.limits.identified.get("batching") == "static":
            self.limits.found(wait_limit_s=round(fit.wait_s, 4))
        self.limits.prompts = self._client.prompts_note()
        out_s = min(self._client.round_trip_s() / 2, fit.first_token_s)
        policies = self.limits.policies()
        layout = build_scheduler(policies).memory.layout
        host = httpx.URL(self.endpoint.base_url).netloc.decode()
        return Profile(
            name=name,
            origin="measured here",
            machine={"endpoint": host, "client": machine_facts()},
            engine={"model": self.endpoint.model, "identified": self.limits.as_dict()},
            policies=policies.as_dict(),
            layouts={layout: StepTimeFit.of(fit.fit)},
            api=ApiLatencyFit(
                request_s=fit.first_token_s - out_s,
                chunk_s=out_s,
                chunk_per_sequence_s=fit.chunk_per_sequence_s,
            ),
            ended_early=self.stopped,
        )

    def as_counted(self, trace: Trace) -> Trace:
        """The trace with prompts in words, where the endpoint takes text."""
        words = [self._client.in_words(request) for request in trace]
        return trace.replaced(words, "as the server counts")

    def server_log(self) -> None:
        """No step log can be read."""

    def check_decisions(self) -> None:
        """Nothing to compare: no step log can be read."""

    def _fit(self) -> BlackBoxFit:
        policies = self.limits.policies()
        rounds = [bursts for bursts in self._sender.rounds if bursts]
        intervals = [[i for a in bursts for i in read_intervals(a, policies)] for bursts in rounds]
        try:
            spread_s = chunk_spread_s([answers for bursts in rounds for answers in bursts])
            return fit_black_box(intervals, spread_s, self._seed)
        except ProfileError as error:
            why = f" ({self._ended})" if self._ended else ""
            kind = EndedEarly if self.stopped else ProfileError
            raise kind(f"black-box calibration{why}: {error}") from error

    def _warm_up(self) -> None:
        try:
            for _ in range(2):
                self._sender.send([BurstRequest(SMALL_PROMPT, LONE_OUTPUTS)], keep=False)
        except ProbeStopped as ended:
            raise EndedEarly(f"the endpoint does not answer a first request: {ended}") from ended

    def _run_bursts(self) -> None:
        for requests in bursts(self._sender, self.limits):
            self._sender.send(requests)

    def _send_load(self, trace: Trace) -> None:
        """Send requests drawn from ``trace`` near its capacity, as far as the allowance goes.

        The capacity is the predicted one, or what a burst of them shows to be less. They share no
        prefixes: not every server says what its cache held of a prompt.
        """
        allowance = self._sender.allowance
        burst = [
            replace(one, request_id=f"{one.request_id}-at-once", arrival_s=0.0, prefix_block_ids=())
            for one in representative_load(trace, 1.0, LOAD_S, self._sender.rng)
        ]
        answers = self._sender.send_requests(burst)
        ended_s = [one.stamps_s[-1] for one in answers if one.stamps_s]
        completed_per_s = len(burst) / (max(ended_s) - min(one.sent_s for one in answers))
        rate_per_s = min(load_rate_per_s(trace, self.profile()), LOAD_UTILISATION * completed_per_s)
        seconds = min(
            LOAD_S, LOAD_SHARE * min(allowance.left_s, allowance.left_requests / rate_per_s)
        )
        load = representative_load(trace, rate_per_s, seconds, self._sender.rng)
        self._sender.send_requests([replace(request, prefix_block_ids=()) for request in load])

    def _find_kv(self) -> None:
        model = StepTimeFit.of(self._fit().fit).model()
        find_kv_tokens(self._sender, self.limits, model)

    def _try(self, what: str, experiment: Callable[[], None], *names: str) -> None:
        """Run an experiment; where it fails, note why the settings ``names`` stay open."""
        if self._ended is not None:
            self.limits.unknown(f"not tried: {self._ended}", *names)
            return
        self._report_progress(f"calibrating: {what}")
        try:
            experiment()
        except (ProbeStopped, KeyboardInterrupt) as error:
            ended = error if isinstance(error, ProbeStopped) else EndpointLost("interrupted")
            self._ended = ended if ended.final else None
            self.limits.unknown(str(ended), *names)
            if not names:
                self.limits.notes.append(f"{what}: {ended}")
        except ProfileError as error:
            self.limits.unknown(str(error), *names)

    def _note_what_was_odd(self) -> None:
        bursts, notes = self._sender.bursts, self.limits.notes
        if short := sum(burst.shorter for burst in bursts):
            notes.append(f"{short} answers ended before the asked length: lengths cannot be forced")
        if plain := sum(burst.without_usage for burst in bursts):
            notes.append(f"{plain} answers came without usage: an event is taken for a token")
        if (tokens := max((burst.tokens_per_event for burst in bursts), default=1.0)) > 1.05:
            notes.append(
                f"up to {tokens:.1f} tokens came in one event: an event is taken for a step"
            )
