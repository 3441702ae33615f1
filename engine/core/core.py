"""The engine core: a scheduler that decides, an executor that computes, and the tokens between.

The core knows neither torch nor HTTP nor processes. ``core_loop`` hands it requests
and asks for steps.
"""

import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Listed
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from servetwin.engine.core import step_isolation
from servetwin.engine.core.messages import (
    CoreStats,
    FinishReason,
    Refused,
    RequestFailed,
    TokenEvent,
    one_line,
)
from servetwin.engine.core.samples import Forks, forks_samples
from servetwin.engine.core.timekeeper import Since, Timekeeper
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import NewToken, token_state
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.engine.text.text_stream import TextStream
from servetwin.engine.text.tokenizer import Tokenizer
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.block_keys import token_keys
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.protocols import Refusal, Scheduler
from servetwin.policies.sequence import Sequence, output_id
from servetwin.policies.step_record import StepRecord, record_step

_TICKS_PER_S = 1 << 30


class CoreClock:
    """Monotonic seconds since its creation, in ticks of 2**-30 s.

    Sums and differences of such stamps are exact floats (up to 97 days), so a simulator that adds
    recorded durations to recorded times arrives at the recorded times. It goes on in every process
    of the machine that it is handed to.
    """

    def __init__(self) -> None:
        self._zero_ns = time.monotonic_ns()

    @property
    def zero_s(self) -> float:
        """This clock's zero on ``time.monotonic``; on Linux also on ``time.perf_counter``."""
        return self._zero_ns / 1e9

    def __call__(self) -> float:
        """Return the seconds since the creation of the clock."""
        ticks = (time.monotonic_ns() - self._zero_ns) * _TICKS_PER_S // 1_000_000_000
        return ticks / _TICKS_PER_S


class StepLog(Protocol):
    """Records what the scheduler receives and what it decides."""

    def arrival(self, seq: Sequence) -> None:
        """Record a sequence just before the scheduler receives it."""

    def step(self, record: StepRecord) -> None:
        """Record a step that has run."""

    def failure(self, step: int, request_id: str, reason: str) -> None:
        """Record that a sequence raised in a step and was ended after it."""

    def flush(self) -> None:
        """Write out what is buffered; the engine calls this when it is idle."""


class _Output(NamedTuple):
    """How one answer of a live request is read."""

    request_id: str
    sample: int
    params: SamplingParams
    text: TextStream | None
    """Only where there are stop strings to find in it."""


@dataclass(eq=False)
class EngineCore:
    """Takes requests in and runs them step by step; single-threaded.

    ``prefix_cache`` says whether prompts get block keys; ``clock`` is the time of every ``now_s``;
    ``log`` records arrivals and steps; ``tokenizer`` finds stop strings; ``movers`` copy what the
    policies keep in host memory; ``new_state`` makes what the executor keeps of a new sequence,
    with its ``token_ids``; ``timekeeper`` runs the reference beat between steps, if any.
    """

    scheduler: Scheduler
    executor: step_isolation.Executor
    _: KW_ONLY
    prefix_cache: bool = False
    clock: Callable[[], float] = field(default_factory=CoreClock)
    log: StepLog | None = None
    tokenizer: Tokenizer = field(default_factory=ByteTokenizer)
    movers: Listed[step_isolation.KVMover] = ()
    new_state: Callable[[list[int], SamplingParams], Any] = token_state
    timekeeper: Timekeeper | None = None

    def __post_init__(self) -> None:
        # The beat and the lost time since the step before (s).
        self._since = Since()
        self._states: dict[str, Any] = {}
        self._outputs: dict[str, _Output] = {}
        # The ids at the scheduler of each live request.
        self._sequences: dict[str, list[str]] = {}
        self._forks_samples = forks_samples(self.scheduler)
        # Of blocks that new samples shared, before the next step.
        self._copies: step_isolation.BlockCopies = []
        self._idle = True
        # The other fields of ``CoreStats``.
        self._totals = Counter[str]()
        self._refused: list[Refused] = []
        block_tokens = self.scheduler.memory.block_tokens
        self._isolation = step_isolation.StepIsolation(self.executor, block_tokens, self.movers)

    @property
    def unfinished(self) -> int:
        """Number of accepted requests whose last token has not been sent."""
        return len(self._sequences)

    def add(
        self, request_id: str, token_ids: list[int], params: SamplingParams, received_s: float
    ) -> Refusal | None:
        """Hand a request to the scheduler at ``received_s``; return the reason if it is refused.

        ``request_id`` must not be that of a live request.
        """
        names = [output_id(request_id, sample) for sample in range(params.n)]
        samples = [params.of_sample(sample) for sample in range(params.n)]
        states = [self.new_state(list(token_ids), sampling) for sampling in samples]
        forked = params.n if self._forks_samples else 1
        cached = self.prefix_cache and params.prompt_logprobs is None
        block_tokens = self.scheduler.memory.block_tokens
        keys = token_keys(token_ids, block_tokens, params.adapter or "") if cached else []
        size = len(token_ids), params.max_tokens
        seqs = [Sequence(name, received_s, *size, keys, samples=forked) for name in names[::forked]]
        if refusal := self._queue(seqs):
            return refusal
        self._sequences[request_id] = [seq.request_id for seq in seqs]
        self._states |= zip(names, states, strict=True)
        for sample, (name, sampling) in enumerate(zip(names, samples, strict=True)):
            text = TextStream(self.tokenizer.decoder(), sampling.stop) if sampling.stop else None
            self._outputs[name] = _Output(request_id, sample, sampling, text)
        return None

    def _queue(self, seqs: list[Sequence]) -> Refusal | None:
        """Hand the sequences of a request to the scheduler; none where it refuses one."""
        for place, seq in enumerate(seqs):
            if self.log:
                self.log.arrival(seq)
            if refusal := self.scheduler.add(seq):
                for added in seqs[:place]:
                    self.scheduler.abort(added.request_id)
                return refusal
        return None

    def abort(self, request_id: str) -> None:
        """Forget a request and free its memory; nothing happens if it has ended already."""
        for sequence_id in list(self._sequences.get(request_id, ())):
            self.scheduler.abort(sequence_id)
            self._forget(sequence_id)

    def step(self, now_s: float) -> list[TokenEvent | RequestFailed] | None:
        """Run what the scheduler decides at ``now_s``; None when there is nothing to run yet.

        The list may be empty: a chunk of a prompt yields no token. A sequence that raises is
        failed, and the others have their tokens.
        """
        if self.timekeeper:
            self._since = self.timekeeper.begin_step(now_s)
        batch = self.scheduler.schedule(now_s)
        dropped = self._read_dropped()
        events = None if batch is None else self._run(batch, now_s)
        self._idle = batch is None
        for request_id in dropped:  # whose other samples may have been in the batch
            self.abort(request_id)
        return events

    def _run(self, batch: Batch, now_s: float) -> list[TokenEvent | RequestFailed]:
        """Run a batch, complete it, and return what came of it."""
        memory = self.scheduler.memory
        step_tokens = 0
        for seq, start, tokens, _, _ in batch.entries:
            memory.table(seq, start + tokens)
            step_tokens += tokens
        self._totals["step_tokens"] = step_tokens
        for seq in batch.resumed:  # which may wait for a later step, or be preempted again
            if seq.lockstep is not None:
                memory.table(seq, seq.computed_tokens)
        if self._copies:
            self.executor.copy_blocks(self._copies)
        result = self._isolation.execute(batch, self._states)
        drafts = _drafts(batch, result) if batch.drafted else []
        self._record(batch, now_s, self.clock() - now_s, drafts)
        events = self._read_tokens(batch, result)
        if batch.drafted:
            _report_accepted(batch, events)
        failures = {
            self._outputs[name].request_id: error for name, error in result.failures.items()
        }
        forks = Forks(batch)
        for seq in self.scheduler.complete(batch):
            self._forget(seq.request_id)
        self._copies = forks.copies(self.scheduler)
        events += [self._fail(*failure) for failure in failures.items()]
        self._isolation.forget_unfilled(self.scheduler)
        return events

    def _read_dropped(self) -> set[str]:
        """Refuse the requests whose sequences the scheduler has dropped; return their ids."""
        requests = set[str]()
        for seq, refusal in self.scheduler.dropped:
            request_id = self._outputs[seq.request_id].request_id
            if request_id not in requests:
                self._refused.append(Refused(request_id, refusal.kind, refusal.reason))
            requests.add(request_id)
            self._forget(seq.request_id)
        self.scheduler.dropped.clear()
        return requests

    def refusals(self) -> list[Refused]:
        """Return the requests that the scheduler dropped from its queue since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def stats(self) -> CoreStats:
        """Return the present load of the core and its totals."""
        running, waiting, free_tokens = self.scheduler.load()
        kv_usage = 1 - free_tokens / self.scheduler.memory.capacity_tokens
        return CoreStats(running, waiting, kv_usage, **self._totals)

    def _record(
        self, batch: Batch, now_s: float, duration_s: float, drafts: list[tuple[str, int, int]]
    ) -> None:
        """Log and count a batch that has run but is not completed yet."""
        if self.log:
            decided = self._totals["steps"], batch, self.scheduler, now_s, duration_s, self._idle
            record = record_step(*decided, drafts)
            if self.timekeeper:
                slept = self._idle  # which is no time that others took
                since = Since(self._since.beat_s) if slept else self._since
                record = replace(record, **since._asdict())
            self.log.step(record)
        self._totals["steps"] += 1
        if drafts:
            self._totals["draft_passes"] += len(drafts)
            self._totals["drafted_tokens"] += sum(drafted for _, drafted, _ in drafts)
            self._totals["accepted_tokens"] += sum(accepted for _, _, accepted in drafts)
        self._totals["preemptions"] += len(batch.preempted)
        if self.prefix_cache:
            for entry in filter(_is_admission, batch.chunks):
                self._totals["prefix_queries"] += entry.seq.prompt_tokens
                self._totals["prefix_hits"] += entry.seq.cached_tokens

    def _read_tokens(
        self, batch: Batch, result: step_isolation.StepResult
    ) -> list[TokenEvent | RequestFailed]:
        """Return the events of a step's tokens; one that cannot be read fails its sequence.

        The next tokens of a prompt that was shortened (``recompute: computed``) are known.
        """
        events: list[TokenEvent | RequestFailed] = []
        for seq in batch.sampled:
            if seq.request_id in result.failures:
                continue
            if seq.total_tokens >= len(self._states[seq.output_id].token_ids):
                try:
                    for name in seq.output_ids():
                        events += self._advance(seq, name, result.tokens[name])
                except Exception as error:
                    result.failures[seq.request_id] = error
        return events

    def _advance(self, seq: Sequence, name: str, tokens: list[NewToken]) -> list[TokenEvent]:
        """Append the tokens of one step to an answer, up to the one that ends it."""
        events = list[TokenEvent]()
        for generated, token in enumerate(tokens, seq.generated_tokens + 1):
            events.append(self._append(seq, name, token, generated))
            if events[-1].finish_reason:
                break
        return events

    def _append(self, seq: Sequence, name: str, token: NewToken, generated: int) -> TokenEvent:
        """Append one token, the ``generated``-th of an answer; mark its sequence as stopped when
        the token ends it early.
        """
        request_id, sample, params, text = self._outputs[name]
        self._states[name].token_ids.append(token.token_id)
        may_stop = generated >= params.min_tokens
        found_stop = text is not None and text.push(token.token_id, may_stop)[1]
        ends = found_stop or (may_stop and params.ends_with(token.token_id))
        if ends and name == seq.output_id:
            seq.stop()
        elif ends:
            seq.ended_samples += (sample,)
        at_limit: FinishReason | None = "length" if generated >= params.max_tokens else None
        reason = "stop" if ends else at_limit
        logprobs = token.logprobs, token.prompt_logprobs
        return TokenEvent(
            request_id, token.token_id, reason, seq.cached_tokens, "", sample, *logprobs
        )

    def _fail(self, request_id: str, error: Exception) -> RequestFailed:
        """End a request whose step raised, even if that was its last step."""
        self.abort(request_id)
        reason = one_line(error)
        if self.log:
            self.log.failure(self._totals["steps"] - 1, request_id, reason)
        return RequestFailed(request_id, reason)

    def _forget(self, sequence_id: str) -> None:
        """Forget what a sequence at the scheduler has been, with all its samples."""
        request_id, _, params, _ = self._outputs[sequence_id]
        left = self._sequences[request_id]
        left.remove(sequence_id)
        if not left:
            del self._sequences[request_id]
        forked = params.n if self._forks_samples else 1
        names = [sequence_id, *(output_id(request_id, sample) for sample in range(1, forked))]
        for name in names:
            del self._states[name], self._outputs[name]


def _drafts(batch: Batch, result: step_isolation.StepResult) -> list[tuple[str, int, int]]:
    """Return (output id, drafted tokens, accepted ones) of the decodes that verified drafts."""
    verified = (entry.seq.output_id for entry in batch.entries[: batch.drafted])
    tokens = ((name, result.tokens[name]) for name in verified if name in result.tokens)
    return [(name, new[0].drafted, len(new) - 1) for name, new in tokens]


def _report_accepted(batch: Batch, events: list[TokenEvent | RequestFailed]) -> None:
    """Tell the decodes that verified drafts how many tokens came out of their pass."""
    group = batch.lockstep
    assert isinstance(group, DraftedDecodes)
    tokens = Counter(
        output_id(event.request_id, event.sample)
        for event in events
        if isinstance(event, TokenEvent)
    )
    for seq in group:
        group.gained(seq, tokens[seq.output_id])


def _is_admission(entry: ScheduledSequence) -> bool:
    seq = entry.seq
    return entry.start == seq.cached_tokens and not seq.generated_tokens and not seq.preemptions
