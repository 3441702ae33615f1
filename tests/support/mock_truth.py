"""The truth of a mock: kept in memory, read from its file, and the latencies in it."""

import json
from array import array
from pathlib import Path
from typing import Any

from servetwin.loadtest.mock.truth import Truth, TruthLog


class KeptTruth(TruthLog):
    """Also keeps the requests in memory, in the order in which they came."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.records: list[Truth] = []

    def begin(self, truth: Truth) -> None:
        super().begin(truth)
        self.records.append(truth)


def read_truth(path: Path) -> list[Truth]:
    """The records of a file, in the order in which the requests ended."""
    with path.open() as lines:
        return [_truth(json.loads(line)) for line in lines]


def _truth(fields: dict[str, Any]) -> Truth:
    stamps = {name: array("q", fields[name]) for name in ("due_ns", "written_ns")}
    return Truth(**{**fields, **stamps})


def ttft_s(truth: Truth) -> float:
    """From its arrival to the first token."""
    return (truth.written_ns[0] - truth.arrival_ns) / 1e9


def tpot_s(truth: Truth) -> float:
    """The time per token after those of the first write."""
    return (truth.written_ns[-1] - truth.written_ns[0]) / 1e9 / sum(truth.tokens[1:])
