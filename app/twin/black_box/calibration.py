"""Calibrate an endpoint from outside: its policies, its limits, its step times.

First the experiments that tell what kind of server it is, then rounds of bursts for the step times,
then the memory limit, which needs them. Whatever ends early (time, requests, Ctrl-C, a refusal)
leaves what was learned until then.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from app.twin.black_box.findings import Findings
from app.twin.black_box.limits import (
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
from app.twin.black_box.rounds import bursts
from app.twin.black_box.sender import Sender
from app.twin.black_box.session import Allowance, Ask, Broken, Ended, Session
from policies.registry import build_scheduler
from sim.records.run import machine_facts
from sim.step_times.black_box_fit import BlackBoxFit, chunk_spread_s, fit_black_box
from sim.step_times.black_box_steps import read_intervals
from sim.step_times.profile import ApiLatencyFit, Profile, StepTimeFit
from workloads.errors import EndedEarly, ProfileError

Tell = Callable[[str], None]
ROUNDS = 2
INEXACT_SHARE = 0.9
"""Of the context, where prompt lengths are known only when the server has counted them."""


class OutsideCalibrator:
    """Learns one endpoint through ``send``; ``max_model_len`` where the endpoint tells it.

    Prompts of text are not counted exactly before they are sent (``exact_lengths`` is false): they
    keep away from that limit.
    """

    def __init__(
        self,
        send: Sender,
        allowance: Allowance,
        max_model_len: int | None = None,
        exact_lengths: bool = True,
        seed: int = 0,
        tell: Tell = lambda _: None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.findings = Findings(longest=SMALL_PROMPT + LONE_OUTPUTS)
        if max_model_len is not None:
            share = 1.0 if exact_lengths else INEXACT_SHARE
            self.findings.longest = int(share * max_model_len)
            self.findings.found(max_model_len=max_model_len)
        rng = np.random.default_rng(seed)
        self._session = Session(send, allowance, rng, clock, sleep)
        self._seed = seed
        self._tell = tell
        self._ended: Ended | None = None

    @property
    def broken(self) -> str | None:
        """What broke the calibration off: Ctrl-C, or an endpoint that is gone."""
        return str(self._ended) if isinstance(self._ended, Broken) else None

    def identify(self, rounds: int = ROUNDS) -> None:
        """Every experiment, ``rounds`` rounds of bursts, and the memory limit.

        Raises ``EndedEarly`` where the endpoint does not even answer a first request.
        """
        session, findings = self._session, self.findings
        self._warm_up()
        self._try("prompts of all lengths", lambda: find_context(session, findings))
        self._try("the scheduler", lambda: find_batching(session, findings), "batching")
        self._try("the token budget", lambda: find_budget(session, findings), "token_budget")
        self._try("how steps are filled", lambda: find_filling(session, findings))
        self._try("the batch limit", lambda: find_max_seqs(session, findings), "max_seqs")
        self._try("the prefix cache", lambda: find_prefix_cache(session, findings), "prefix_cache")
        for number in range(rounds):
            self.run_round(f"round {number + 1} of {rounds}")
        self._try("the memory limit", self._find_kv, "kv_tokens")
        self._note_what_was_odd()

    def run_round(self, label: str = "another round") -> None:
        """All bursts of the fit once more, as far as the allowance goes."""
        self._session.rounds.append([])
        self._try(f"step times, {label}", self._run_bursts)

    def fit(self) -> BlackBoxFit:
        """The fit to all bursts so far, read with the policies that were identified.

        Raises ``ProfileError`` when they are too few.
        """
        policies = self.findings.policies()
        rounds = [answers for answers in self._session.rounds if answers]
        intervals = [
            [i for a in answers for i in read_intervals(a, policies)] for answers in rounds
        ]
        try:
            spread_s = chunk_spread_s([a for answers in rounds for a in answers])
            return fit_black_box(intervals, spread_s, self._seed)
        except ProfileError as error:
            why = f" ({self._ended})" if self._ended else ""
            raise ProfileError(f"calibration from outside{why}: {error}") from error

    def profile(self, name: str, endpoint: str, model: str, round_trip_s: float) -> Profile:
        """What was learned, as a profile.

        The API's latency is what an idle server's first token takes beyond its steps: half of the
        round trip is taken for the way out, which no client can tell from the way in.
        """
        found = self.fit()
        if self.findings.identified.get("batching") == "static":
            self.findings.found(wait_limit_s=round(found.wait_s, 4))
        out_s = min(round_trip_s / 2, found.first_token_s)
        layout = build_scheduler(self.findings.policies()).memory.layout
        engine: dict[str, Any] = {"model": model, "identified": self.findings.as_dict()}
        return Profile(
            name=name,
            origin="measured",
            machine={"endpoint": endpoint, "client": machine_facts()},
            engine=engine,
            policies=self.findings.policies().as_dict(),
            layouts={layout: StepTimeFit.of(found.fit)},
            api=ApiLatencyFit(
                request_s=found.first_token_s - out_s,
                chunk_s=out_s,
                chunk_per_sequence_s=found.chunk_per_sequence_s,
            ),
        )

    def _warm_up(self) -> None:
        try:
            for _ in range(2):
                self._session.send([Ask(SMALL_PROMPT, LONE_OUTPUTS)], keep=False)
        except Ended as ended:
            raise EndedEarly(f"the endpoint does not answer a first request: {ended}") from ended

    def _run_bursts(self) -> None:
        for asks in bursts(self._session, self.findings):
            self._session.send(asks)

    def _find_kv(self) -> None:
        model = StepTimeFit.of(self.fit().fit).model()
        find_kv_tokens(self._session, self.findings, model)

    def _try(self, what: str, experiment: Callable[[], None], *names: str) -> None:
        """Run an experiment, or say why what it would have settled stays open."""
        if self._ended is None:
            self._tell(f"calibrating: {what}")
            try:
                experiment()
            except Ended as ended:
                self._ended = ended if ended.final else None
                self.findings.unknown(str(ended), *names)
                if not names:
                    self.findings.notes.append(f"{what}: {ended}")
            except KeyboardInterrupt:
                self._ended = Broken("interrupted")
                self.findings.unknown("interrupted", *names)
            except ProfileError as error:
                self.findings.unknown(str(error), *names)
        else:
            self.findings.unknown(f"not tried: {self._ended}", *names)

    def _note_what_was_odd(self) -> None:
        session, findings = self._session, self.findings
        if session.shorter:
            findings.notes.append(
                f"{session.shorter} answers ended before the asked length: lengths cannot be forced"
            )
        if session.untold:
            findings.notes.append(
                f"{session.untold} answers came without usage: an event is taken for a token"
            )
        if session.tokens_per_event > 1.05:
            findings.notes.append(
                f"up to {session.tokens_per_event:.1f} tokens came in one event: an event is "
                "taken for a step"
            )
