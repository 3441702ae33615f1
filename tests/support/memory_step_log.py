"""A step log that keeps everything in memory."""

from servetwin.engine.core.step_log import ARRIVAL_FIELDS
from servetwin.policies.sequence import Sequence
from servetwin.policies.step_record import StepRecord


class MemoryStepLog:
    """Keeps what the scheduler receives and decides."""

    def __init__(self) -> None:
        self.arrivals: list[Sequence] = []
        self.records: list[StepRecord] = []
        self.failures: list[tuple[int, str, str]] = []

    def arrival(self, seq: Sequence) -> None:
        """Keep a fresh copy of the sequence."""
        self.arrivals.append(
            Sequence(**{name: getattr(seq, name) for name in ARRIVAL_FIELDS}, samples=seq.samples)
        )

    def step(self, record: StepRecord) -> None:
        """Keep the record."""
        self.records.append(record)

    def failure(self, step: int, request_id: str, reason: str) -> None:
        """Keep which request failed in which step."""
        self.failures.append((step, request_id, reason))

    def flush(self) -> None:
        """Do nothing: records are kept in memory."""
