"""What a simulation writes down: stamps of requests and rows of steps, in plain lists."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from policies.batch import Batch, BatchShape
from policies.protocols import Refusal
from policies.sequence import Sequence
from policies.step_record import StepRecord
from sim.metrics import REQUEST_COLUMNS, derive
from sim.step_time import ApiLatency
from workloads.request import Request

STEP_COLUMNS = (
    "start_s",
    "end_s",
    "steps",
    "decode_sequences",
    "prefill_chunks",
    "rows",
    "decode_context_tokens",
    "running",
    "waiting",
    "free_kv_tokens",
)


@dataclass(slots=True, eq=False)
class Outcome:
    """What happened to one request."""

    request: Request
    seq: Sequence
    status: str = "cancelled"
    error: str = ""
    admitted_s: float = float("nan")
    first_token_s: float = float("nan")
    last_token_s: float = float("nan")


@dataclass(slots=True)
class Recorder:
    """Collects outcomes by request and rows by step; ``keep_records`` adds full step records."""

    api: ApiLatency = field(default_factory=ApiLatency)
    keep_records: bool = False
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    step_rows: list[list[Any]] = field(default_factory=list)
    records: list[StepRecord] = field(default_factory=list)
    total_steps: int = 0

    def arrived(self, request: Request, seq: Sequence, refusal: Refusal | None) -> None:
        """A request came to the server, and was perhaps refused."""
        outcome = Outcome(request, seq)
        if refusal:
            outcome.status, outcome.error = "refused", f"{refusal.kind}: {refusal.reason}"
        self.outcomes[request.request_id] = outcome

    def scheduled(self, batch: Batch, now_s: float) -> None:
        """A batch was decided; those in it for the first time leave the queue."""
        for entry in batch.entries:
            if entry.seq.generated_tokens == 0:
                outcome = self.outcomes[entry.seq.request_id]
                if outcome.admitted_s != outcome.admitted_s:
                    outcome.admitted_s = now_s

    def step(
        self, now_s: float, shape: BatchShape, running: int, waiting: int, free_tokens: int
    ) -> int:
        """A batch starts; returns the index of its row."""
        chunks = len(shape.prefill_chunks)
        row = [now_s, now_s, 1, shape.decode_sequences, chunks, shape.rows]
        row += [shape.decode_context_tokens, running, waiting, free_tokens]
        self.step_rows.append(row)
        return len(self.step_rows) - 1

    def ran(self, index: int, steps: int, end_s: float) -> None:
        """The batch of row ``index`` ran ``steps`` times."""
        self.step_rows[index][1:3] = [end_s, steps]
        self.total_steps += steps

    def tokens(self, batch: Batch, finished: list[Sequence], now_s: float) -> None:
        """A batch ended: stamp first and last tokens as the client sees them."""
        at_client_s = now_s + self.api.chunk_out_s(len(batch.entries))
        for entry in batch.entries:
            if entry.samples and entry.seq.generated_tokens == 1:
                self.outcomes[entry.seq.request_id].first_token_s = at_client_s
        for seq in finished:
            outcome = self.outcomes[seq.request_id]
            outcome.status, outcome.last_token_s = "finished", at_client_s

    def requests_frame(self, replica: int = 0) -> pd.DataFrame:
        """One row per request, in order of arrival (``REQUEST_COLUMNS``)."""
        rows = [
            (
                o.request.request_id,
                o.status,
                o.request.arrival_s,
                o.request.arrival_s,
                o.first_token_s,
                o.last_token_s,
                o.request.prompt_tokens,
                o.seq.generated_tokens,
                o.seq.cached_tokens,
                o.seq.preemptions,
                o.admitted_s - o.seq.arrival_s,
                replica,
                o.error,
            )
            for o in self.outcomes.values()
        ]
        names = [c for c in REQUEST_COLUMNS if c not in ("ttft_s", "tpot_s", "e2e_s")]
        frame: pd.DataFrame = derive(pd.DataFrame(rows, columns=names))[list(REQUEST_COLUMNS)]
        return frame

    def steps_frame(self) -> pd.DataFrame:
        """One row per run of equal batches (``STEP_COLUMNS``)."""
        return pd.DataFrame(self.step_rows, columns=list(STEP_COLUMNS))
