"""The mapping of a generated table is right, or it asks; it is never silently wrong."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import read_trace
from servetwin.workloads.tables.mapping import parse_mapping
from tests.support.trace_rows import Write

START = datetime(2026, 3, 4, 9, tzinfo=UTC)
NAMES = {
    "arrival": (
        "timestamp",
        "arrival",
        "arrived_at",
        "created_at",
        "start_time",
        "ts",
        "time",
        "Time",
        "t",
        "request_time",
        "date",
        "received",
        "x1",
    ),
    "prompt_tokens": (
        "prompt_tokens",
        "input_tokens",
        "Prompt",
        "in",
        "tokens_in",
        "usage.prompt_tokens",
        "x2",
        "ContextTokens",
        "input_length",
    ),
    "output_tokens": (
        "output_tokens",
        "completion_tokens",
        "Output",
        "out",
        "tokens_out",
        "GeneratedTokens",
        "x3",
        "usage.completion_tokens",
        "answer",
    ),
    "status": ("status", "status_code", "outcome", "success", "x4"),
    "ttft": ("ttft_ms", "time_to_first_token_ms", "ttft", "x5"),
    "e2e": ("latency_ms", "duration", "elapsed_ms", "response_time_ms", "x6"),
    "session": ("session_id", "conversation_id", "user", "x7"),
}
DECOYS: Mapping[str, Callable[[int, int], str]] = {
    "total_tokens": lambda n, r: str(r),
    "max_tokens": lambda n, r: "512",
    "row": lambda n, r: str(n),
    "index": lambda n, r: str(n),
    "cost": lambda n, r: f"{r / 1e5}",
    "region": lambda n, r: "eu",
    "retries": lambda n, r: str(r % 3),
    "updated": lambda n, r: (START + timedelta(days=1, seconds=n)).isoformat(),
    "request_length": lambda n, r: str(7 * r),
    "http_port": lambda n, r: "443",
}


@dataclass(frozen=True)
class Asked:
    at_ms: int
    prompt: int
    output: int
    status: int
    ttft_ms: int


ROWS = st.lists(
    st.builds(
        Asked,
        st.integers(0, 600_000),
        st.integers(1, 9000),
        st.integers(1, 900),
        st.sampled_from((200, 200, 429, 500)),
        st.integers(1, 999),
    ),
    min_size=2,
    max_size=8,
)
CLOCKS = ("iso", "zoned", "epoch", "epoch ms", "dmy", "mdy", "s", "ms", "bare s", "bare ms")


def stamp(clock: str, at_ms: int) -> str:
    moment = START + timedelta(milliseconds=at_ms)
    since_ms = round(moment.timestamp() * 1000)
    forms = {
        "iso": moment.strftime("%Y-%m-%d %H:%M:%S.%f"),
        "zoned": moment.isoformat(timespec="milliseconds"),
        "epoch": f"{since_ms / 1000:.3f}",
        "epoch ms": str(since_ms),
        "dmy": moment.strftime("%d/%m/%Y %H:%M:%S.%f"),
        "mdy": moment.strftime("%m/%d/%Y %H:%M:%S.%f"),
    }
    number = f"{at_ms / 1000:.3f}" if clock in ("s", "bare s") else str(at_ms)
    return forms.get(clock, number)


def form_of(clock: str) -> str:
    forms = {"iso": "", "zoned": "", "epoch": "_s", "epoch ms": "_ms", "dmy": "_dmy", "mdy": "_mdy"}
    return forms.get(clock, "_" + clock.removeprefix("bare "))


@dataclass(frozen=True)
class Drawn:
    """A table as text, and the mapping that is true of it."""

    text: str
    mapping: str
    expected: Sequence[tuple[float, int, int]]


@st.composite
def tables(draw: st.DrawFn) -> Drawn:
    rows, clock = draw(ROWS), draw(st.sampled_from(CLOCKS))
    names = {q: draw(st.sampled_from(known)) for q, known in NAMES.items()}
    if clock in ("s", "ms"):
        names["arrival"] += f"_{clock}"
    has_status = draw(st.booleans())
    cells = {
        names["arrival"]: [stamp(clock, r.at_ms) for r in rows],
        names["prompt_tokens"]: [str(r.prompt) for r in rows],
        names["output_tokens"]: [str(r.output) for r in rows],
    }
    if has_status:
        cells[names["status"]] = [str(r.status) for r in rows]
    if draw(st.booleans()):
        cells[names["ttft"]] = [str(r.ttft_ms) for r in rows]
        cells[names["e2e"]] = [str(r.ttft_ms + 10 * r.output) for r in rows]
    if draw(st.booleans()):
        cells[names["session"]] = [f"s{r.prompt % 3}" for r in rows]
    for decoy in draw(st.sets(st.sampled_from(sorted(DECOYS)), max_size=4)):
        cells[decoy] = [DECOYS[decoy](n, r.prompt + r.output) for n, r in enumerate(rows)]
    order = draw(st.permutations(list(cells)))
    needed = ("arrival", "prompt_tokens", "output_tokens")
    forms = {"arrival": form_of(clock), "prompt_tokens": "", "output_tokens": ""}
    true = {f"{quantity}{forms[quantity]}": names[quantity] for quantity in needed}
    kept = [r for r in rows if not has_status or r.status == 200]
    if has_status:
        true["status"] = names["status"]
    origin_ms = min(r.at_ms for r in rows)
    expected = sorted(((r.at_ms - origin_ms) / 1000, r.prompt, r.output) for r in kept)
    text = io.StringIO()
    writer = csv.writer(text, delimiter=draw(st.sampled_from(",;\t|")))
    writer.writerows([order, *zip(*(cells[name] for name in order), strict=True)])
    return Drawn(text.getvalue(), ",".join(f"{k}={v}" for k, v in true.items()), expected)


def read(path: Path, columns: str | None) -> list[tuple[float, int, int]]:
    try:
        found = read_trace(path, columns=parse_mapping(columns) if columns else None)
    except TraceError as error:
        if "no requests" in str(error):
            return []
        raise
    return sorted((round(r.arrival_s, 6), r.prompt_tokens, r.output_tokens) for r in found)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=tables())
def test_a_table_is_read_right_or_it_asks(drawn: Drawn, write: Write) -> None:
    path = write(drawn.text)
    try:
        found = read(path, None)
    except TraceError as error:
        found, said = list(drawn.expected), str(error)
    else:
        said = "read"
    event("read" if said == "read" else "asked")
    assert said == "read" or "give --map " in said
    assert found == drawn.expected, drawn.text
    assert read(path, drawn.mapping) == drawn.expected
