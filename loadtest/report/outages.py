"""Gaps of a load test in which the endpoint could not be reached.

A gap is a run of requests, in the order in which they were sent, of which none got a connection;
the streams that broke just before it belong to it. It ends with the next request that got one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import pandas as pd

from servetwin.workloads.rows import counted

_LISTED = 3
_REFUSED, _BROKEN = "connect", "broken_stream"


@dataclass(frozen=True, slots=True)
class Outage:
    """A gap: when its first request was sent, and the first that got a connection again.

    ``to_s`` is None where none did. ``lost`` counts the requests between the two.
    """

    from_s: float
    to_s: float | None
    lost: int


def outages(requests: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the gaps of a load test, each an ``Outage`` as a mapping."""
    return [asdict(outage) for outage in _outages(requests)]


def _outages(requests: pd.DataFrame) -> Iterator[Outage]:
    if not (requests["error"] == _REFUSED).any():
        return
    sent = requests[requests["sent_s"].notna()].sort_values("sent_s", kind="stable")
    rows = zip(sent["sent_s"].tolist(), sent["error"].tolist(), strict=True)
    parts = [list(part) for _, part in groupby(rows, key=lambda row: row[1] in (_REFUSED, _BROKEN))]
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        if any(error == _REFUSED for _, error in part):
            yield Outage(part[0][0], after[0][0] if after else None, len(part))


def outage_lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each of the first gaps, and one for the others together."""
    for outage in found[:_LISTED]:
        yield f"NO CONNECTION {_when(outage)}: {counted(outage['lost'], 'request')} lost"
    if more := found[_LISTED:]:
        lost = counted(sum(outage["lost"] for outage in more), "request")
        yield f"NO CONNECTION {counted(len(more), 'more time')}: {lost} lost"


def _when(outage: Mapping[str, Any]) -> str:
    from_s, to_s = outage["from_s"], outage["to_s"]
    if to_s is None:
        return f"from {from_s:.2f} s to the end"
    return f"from {from_s:.2f} s to {to_s:.2f} s"
