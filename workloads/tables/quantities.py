"""What a column of a table may hold; a time names its unit, a date may name its order."""

from collections.abc import Mapping

UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds of each unit of time."""
DATE_ORDERS = ("dmy", "mdy")
"""Day or month first, as in 20/11/2026 09:00:00 and 11/20/2026 09:00:00."""

ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS = "arrival", "prompt_tokens", "output_tokens"
PROMPT, ANSWER = "prompt", "answer"
TTFT, E2E, QUEUE = "ttft", "e2e", "queue"
FIRST_TOKEN, LAST_TOKEN = "first_token", "last_token"
STATUS, ERROR = "status", "error"
SESSION, PREFIX, PREFIX_TOKENS = "session_id", "prefix_id", "prefix_tokens"

STAMPS = (ARRIVAL, FIRST_TOKEN, LAST_TOKEN)
DURATIONS = (TTFT, E2E, QUEUE)
COUNTS = (PROMPT_TOKENS, OUTPUT_TOKENS, "cached_tokens", PREFIX_TOKENS)
TEXTS = (PROMPT, ANSWER, "request_id", SESSION, PREFIX, STATUS, ERROR, "model", "tenant")
MEASURED = (TTFT, E2E, FIRST_TOKEN, LAST_TOKEN)
"""What a server that was measured did, of which step times can be fitted."""

NEEDED = ((ARRIVAL,), (PROMPT_TOKENS, PROMPT), (OUTPUT_TOKENS, ANSWER))
"""One of each: when a request came, how long its prompt is, and how long its answer."""
WORDS: Mapping[str, str] = {
    ARRIVAL: "the arrival",
    PROMPT_TOKENS: "the tokens or the text of the prompt",
    OUTPUT_TOKENS: "the tokens or the text of the answer",
}
"""By the first quantity of each that is needed."""

KNOWN = (
    *COUNTS,
    *TEXTS,
    *STAMPS,
    *(f"{name}_{unit}" for name in STAMPS for unit in (*UNITS_S, *DATE_ORDERS)),
    *(f"{name}_{unit}" for name in DURATIONS for unit in UNITS_S),
)
"""Every key of a mapping."""


def quantity_of(key: str) -> str:
    """Return the quantity of a key of a mapping, without the form of its values."""
    return key.removesuffix(f"_{form_of(key)}") if form_of(key) else key


def form_of(key: str) -> str:
    """Return the unit or the order of dates that a key of a mapping names; empty without one."""
    name, _, form = key.rpartition("_")
    timed = (name in STAMPS and form in (*UNITS_S, *DATE_ORDERS)) or (
        name in DURATIONS and form in UNITS_S
    )
    return form if timed else ""
