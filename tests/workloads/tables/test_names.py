"""Names as logs, gateways and benchmarks have them say what a column holds; others say nothing."""

import pytest

from servetwin.workloads.rows import RowError
from servetwin.workloads.tables.mapping import NEEDED
from servetwin.workloads.tables.moments import (
    cell_count,
    cell_duration_s,
    error_of,
    has_decimal_comma,
    is_missing,
    status_of,
)
from servetwin.workloads.tables.names import is_plain_time, meanings, says_arrival, unit_in

FIRST = {
    "arrival": (
        "arrival",
        "arrival_s",
        "Arrival Time",
        "arrived_at",
        "timestamp",
        "TIMESTAMP",
        "ts",
        "ts_ms",
        "@timestamp",
        "created_at",
        "start_time",
        "startTime",
        "request_timestamp",
        "Time (UTC)",
        "received_at",
        "datetime",
        "request_start",
        "submitted",
        "Zeitstempel",
        "Eingangszeit",
        "horodatage",
    ),
    "prompt_tokens": (
        "prompt_tokens",
        "PromptTokens",
        "input_tokens",
        "Input Tokens",
        "inputTokenCount",
        "num_prompt_tokens",
        "n_prompt",
        "usage.prompt_tokens",
        "gen_ai.usage.input_tokens",
        "tokens_in",
        "in_tokens",
        "ContextTokens",
        "Request tokens",
        "prefill_tokens",
        "input_length",
        "prompt_len",
        "isl",
        "prompt_token_count",
        "Eingabe-Token",
        "Anzahl Eingabetokens",
        "Tokens (Eingabe)",
        "jetons d'entrée",
        "tokens de entrada",
    ),
    "output_tokens": (
        "output_tokens",
        "completion_tokens",
        "generated_tokens",
        "GeneratedTokens",
        "tokens_out",
        "usage.completion_tokens",
        "gen_ai.usage.output_tokens",
        "Response tokens",
        "num_decode_tokens",
        "output_len",
        "osl",
        "out",
        "n_output",
        "gen_tokens",
        "answer_tokens",
        "Ausgabe-Token",
        "Antwort-Tokens",
        "Ausgabetokens",
        "jetons de sortie",
        "tokens de salida",
    ),
    "ttft": (
        "ttft",
        "TTFT_ms",
        "time_to_first_token",
        "Time To First Token (s)",
        "first_token_latency",
    ),
    "e2e": (
        "latency",
        "latency_ms",
        "e2e_latency",
        "duration",
        "Elapsed time",
        "response_time_ms",
        "Dauer (s)",
        "Durée",
    ),
    "session_id": ("session_id", "SessionId", "conversation_id", "chat_id", "thread_id"),
    "status": ("status", "status_code", "http.status_code", "Success", "finish_reason"),
    "error": ("error", "error_message"),
    "request_id": ("request_id", "id", "requestId"),
    "prefix_id": ("prefix_id", "prefix_hash"),
    "prefix_tokens": ("prefix_tokens", "shared_prefix_tokens"),
    "cached_tokens": ("cached_tokens", "prompt_tokens_details.cached_tokens"),
    "last_token": ("end_time", "completed_at", "last_token_time"),
}


@pytest.mark.parametrize(
    ("name", "quantity"), [(name, q) for q, names in FIRST.items() for name in names]
)
def test_a_name_says_what_it_holds(name: str, quantity: str) -> None:
    assert meanings(name)[0] == quantity


NOTHING = (
    "total_tokens",
    "max_tokens",
    "max_output_tokens",
    "prompt_tokens_price",
    "tokens",
    "tokens_per_s",
    "output_tokens_per_second",
    "prompt_id",
    "user_id",
    "input_bytes",
    "prompt_chars",
    "request_length",
    "response_length",
    "context_length",
    "num_requests",
    "prompt_hash",
    "cost",
    "row",
    "c3",
    "a",
    "",
    "reasoning_tokens",
    "cache_creation_input_tokens",
    "batch",
    "temperature",
    "length",
    "request",
    "input_output_tokens",
    "server_time_zone",
    "client_ip",
    "prompt_template",
)


@pytest.mark.parametrize("name", NOTHING)
def test_other_names_say_nothing_that_is_needed(name: str) -> None:
    needed = {quantity for names in NEEDED for quantity in names}
    assert needed.isdisjoint(meanings(name)), meanings(name)


def test_units() -> None:
    found = [unit_in(n) for n in ("ttft_ms", "Latency (s)", "latencyMillis", "ttft", "s", "out_us")]
    assert found == ["ms", "s", "ms", None, None, "us"]


def test_a_time_may_be_a_duration_unless_it_begins_or_arrives() -> None:
    doubtful = [
        n for n in ("time", "t", "request_time", "date", "start_time", "ts") if is_plain_time(n)
    ]
    assert doubtful == ["time", "t", "request_time", "date"]
    assert [n for n in ("arrival_time", "arrived_at", "timestamp") if says_arrival(n)] == [
        "arrival_time",
        "arrived_at",
    ]


@pytest.mark.parametrize(
    ("cell", "count"), [("412", 412), ("412.0", 412), ("412,0", 412), ("+4", 4), ("0", 0)]
)
def test_counts(cell: str, count: int) -> None:
    assert cell_count("in", cell, 0) == count


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("", "missing"),
        ("NaN", "missing"),
        ("4x", "not an integer"),
        ("4.5", "not an integer"),
        ("1.000", "thousands separator"),
        ("1,000", "thousands separator"),
        ("1,234,567", "thousands separator"),
        ("-4", "negative"),
        ("0", "at least 1"),
        ("3000000000", "beyond 2147483647"),
        ("１２", "not an integer"),
        ("1e3", "not an integer"),
    ],
)
def test_what_is_no_count(cell: str, reason: str) -> None:
    with pytest.raises(RowError) as error:
        cell_count("in", cell, 1)
    assert reason in error.value.reason


@pytest.mark.parametrize(
    ("cell", "comma", "seconds"),
    [("80", False, 0.08), ("0.5", False, 0.0005), ("0,5", True, 0.0005), ("1e3", False, 1.0)],
)
def test_durations(cell: str, comma: bool, seconds: float) -> None:
    assert cell_duration_s("ttft", cell, 1e-3, comma) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("cell", "comma", "reason"),
    [
        ("-80", False, "a negative duration"),
        ("0,5", False, "a comma within a number"),
        ("1,234.5", False, "a comma within a number"),
        ("0.5", True, "a point where other rows"),
        ("1.234,5", True, "a comma within a number"),
        ("fast", False, "not a number"),
        ("so,so", True, "not a number"),
        ("1e400", False, "beyond"),
        ("inf", False, "not a number"),
    ],
)
def test_what_is_no_duration(cell: str, comma: bool, reason: str) -> None:
    with pytest.raises(RowError) as error:
        cell_duration_s("ttft", cell, 1e-3, comma)
    assert reason in error.value.reason


def test_missing_durations_are_none() -> None:
    assert [cell_duration_s("ttft", cell, 1.0, False) for cell in ("", "nan", "-", "NULL")] == [
        None
    ] * 4
    assert not is_missing("0")


@pytest.mark.parametrize(
    ("cell", "worked"),
    [
        ("200", True),
        ("204", True),
        ("200.0", True),
        ("429", False),
        ("500", False),
        ("302", False),
        ("OK", True),
        ("Completed", True),
        ("stop", True),
        ("length", True),
        ("true", True),
        ("failed", False),
        ("Timed out", False),
        ("rate-limited", False),
        ("False", False),
        ("0", None),
        ("1", None),
        ("", None),
        ("weird", None),
        ("20", None),
        ("2000", None),
    ],
)
def test_states(cell: str, worked: bool | None) -> None:
    assert status_of(cell) is worked


def test_errors() -> None:
    assert [error_of(cell) for cell in ("", "None", "false", "0")] == [None] * 4
    assert error_of("timeout") == "timeout"


def test_decimal_commas() -> None:
    assert has_decimal_comma("0,31")
    assert not any(map(has_decimal_comma, ("0.31", "31", "1,2,3", "a,b", ",5")))
