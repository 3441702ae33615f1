"""Mooncake traces (Qin et al., FAST 2025): JSON Lines with one chained id per 512 tokens."""

from collections.abc import Sequence

import numpy as np

from workloads.fields import Check, checked, integer, integer_list, json_object, require
from workloads.request import Request
from workloads.rows import RowError, Rows
from workloads.trace import Trace

BLOCK_TOKENS = 512
COARSE_CLOCK_TIES = 0.2
"""A clock counts as coarse where more than this share of the gaps is 0."""

_FIELDS: dict[str, Check] = {
    "timestamp": integer(0),
    "input_length": integer(1),
    "output_length": integer(0),
    "hash_ids": integer_list,
}


def recognises(row: str) -> bool:
    """Whether the first row of a file is this format's."""
    return row.startswith("{") and any(f'"{name}"' in row for name in _FIELDS)


def read(rows: Rows) -> Trace:
    """The requests in file order, at the file's own times, and the clock's tick if it is coarse."""

    def parse(line: int, text: str) -> Request:
        record = json_object(text)
        if "delay" in record:
            # the AIPerf dialect counts only the new tokens of a turn: read as whole prompts, wrong
            raise RowError("delay", "incremental dialect: lengths must be whole prompts", record)
        require(record, _FIELDS)
        fields = checked(record, _FIELDS)
        return Request(
            request_id=f"{rows.source}:{line}",
            arrival_s=fields["timestamp"] / 1000,
            prompt_tokens=fields["input_length"],
            output_tokens=fields["output_length"],
            prefix_block_ids=fields["hash_ids"],
            block_tokens=BLOCK_TOKENS,
            status="ok" if fields["output_length"] else "failed",
            source_line=line,
        )

    requests = tuple(rows.parse(parse))
    return Trace(requests, rows.source, _clock_s([request.arrival_s for request in requests]))


def _clock_s(arrivals_s: Sequence[float]) -> float | None:
    """The most frequent positive gap where ties are many."""
    gaps_ms = np.diff(np.sort(np.rint(np.array(arrivals_s) * 1000)))
    if len(gaps_ms) == 0 or (gaps_ms == 0).mean() <= COARSE_CLOCK_TIES or not gaps_ms.any():
        return None
    values, counts = np.unique(gaps_ms[gaps_ms > 0], return_counts=True)
    return float(values[counts.argmax()] / 1000)
