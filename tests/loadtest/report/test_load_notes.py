"""What to try when a whole load test has failed."""

import pytest

from servetwin.loadtest.report.load_notes import hint

HINTS: list[tuple[dict[str, str], str | None]] = [
    ({"no_token": "no event with text; the body begins '<!doctype html>'"}, "web page"),
    ({"no_token": "no event with text; the body begins 'data: {}'"}, "--dialect"),
    ({"http_4xx": "HTTP 400: Unrecognized request argument: ignore_eos"}, "--no-force-length"),
    ({"http_4xx": "HTTP 401: no"}, "--api-key-env"),
    ({"http_4xx": "HTTP 404: Not Found"}, "--api"),
    ({"http_4xx": "HTTP 400: maximum context length is 4096"}, "--on-too-long clip"),
    ({"http_3xx": "HTTP 302: "}, "redirects"),
    ({"timeout": "no complete answer within 600 s"}, "--timeout"),
    ({"connect": "refused"}, "still running"),
    ({"http_5xx": "HTTP 500: boom"}, None),
    ({"http_4xx": "HTTP 400: prompt is empty"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("messages", "advice"), HINTS)
def test_hints(messages: dict[str, str], advice: str | None) -> None:
    found = hint(messages)
    assert found is None if advice is None else advice in str(found)
