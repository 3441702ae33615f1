"""What proxies and careless servers do to streams: counted right or doubted, by both transports."""

import time
from dataclasses import dataclass, field

import pytest

from servetwin.app.reports.load_test import render_report
from servetwin.loadtest.http import transport as http_client
from servetwin.loadtest.mock.faults import Fault
from servetwin.loadtest.report.load_notes import PROMPT_TEXT, hint
from servetwin.loadtest.report.token_counts import token_count_warnings
from servetwin.loadtest.run.client import LoadOptions, Progress, run_load_test
from tests.support.mock_endpoint import Loaded, chat, completions, evenly, load_all, mocked, plan
from tests.support.stream_faults import (
    CR,
    ByteOrderMark,
    Redirect,
    Refusal,
    Undecoded,
    UsageSays,
)

COUNT, TOKENS = 4, 20
MANY = 200
"""Tokens of an answer that no short stall of the client explains."""
ERROR = "the mock is set to fail"
FEWER = (
    "USAGE DOUBTED for 4 of 4 requests: the server's count of output tokens is below the chunks "
    "with text (4); each chunk is counted as one token instead"
)
BUFFERED = (
    "ANSWER BUFFERED for 4 of 4 requests: all their tokens came at once, so TTFT is the time of "
    "the whole answer and TPOT says nothing; look for a proxy that compresses or collects "
    "answers, or a server that ignores stream"
)


@dataclass(frozen=True)
class Row:
    """Faults, the chunks of each answer, the failure of all requests, and the doubts of the run."""

    faults: tuple[str | Fault, ...]
    chunks: int = TOKENS
    tokens: int = TOKENS
    api: str = "chat"
    failure: str | None = None
    doubts: list[str] = field(default_factory=list)


ROWS = {
    "plain": Row(()),
    "byte order mark, CR": Row((ByteOrderMark(), CR())),
    "completions, byte order mark, CR, comments": Row(
        (ByteOrderMark(), CR(), "comments"), api="completions"
    ),
    "refusal": Row((Refusal(),)),
    "tokens without text": Row((Undecoded(),)),
    "tokens without text, usage each time": Row((Undecoded(), "usage:send=each")),
    "tokens without text nor event": Row((Undecoded(sent=False),), chunks=14),
    "tokens without text, completions": Row((Undecoded(),), api="completions"),
    "error by its name": Row(("error:named=true",), chunks=8, failure=f"sse_error: {ERROR}"),
    "redirect": Row(
        (Redirect(to="/v1/elsewhere?key=s3cret"),),
        chunks=0,
        failure="http_3xx: HTTP 307: redirects to {url}/v1/elsewhere",
    ),
    "out of the vocabulary": Row(
        ("status:code=400,message=Token id 70000 is out of vocabulary",),
        chunks=0,
        failure="http_4xx: HTTP 400: Token id 70000 is out of vocabulary",
    ),
    "usage below 0": Row(
        (UsageSays(tokens=-7),), doubts=[FEWER.replace("below the chunks with text", "below 0")]
    ),
    "usage too small": Row((UsageSays(tokens=3),), doubts=[FEWER]),
    "usage of nothing": Row((UsageSays(tokens=0),), doubts=[FEWER]),
    "usage too large": Row(
        (UsageSays(tokens=100000000000000000000),),
        doubts=[
            FEWER.replace(
                "below the chunks with text",
                "above the limit that was sent and what the stream shows",
            )
        ],
    ),
    "buffered": Row(("buffered",), MANY, MANY, doubts=[BUFFERED]),
    "buffered and compressed": Row(("buffered:kind=gzip",), MANY, MANY, doubts=[BUFFERED]),
    "one object": Row(("buffered:kind=json",), chunks=1, doubts=[BUFFERED]),
    "one object, completions": Row(
        ("buffered:kind=json",), chunks=1, api="completions", doubts=[BUFFERED]
    ),
}


@pytest.fixture(scope="module", params=["own", "httpx"])
def loaded(request: pytest.FixtureRequest) -> dict[str, tuple[Loaded, str]]:
    """By row: what was measured, and the URL of the server."""
    plans = [plan(*row.faults, ttft_ms=60, itl_ms=200 / row.tokens) for row in ROWS.values()]
    with mocked(*plans) as servers, pytest.MonkeyPatch.context() as patch:
        if request.param == "httpx":
            patch.setattr(http_client, "httpx_reason", lambda *_, **__: "a test")
        endpoints = {
            name: (chat if row.api == "chat" else completions)(server)
            for (name, row), server in zip(ROWS.items(), servers, strict=True)
        }
        runs: dict[str, Loaded] = {}
        for tokens in (TOKENS, MANY):
            alike = {name: endpoints[name] for name, row in ROWS.items() if row.tokens == tokens}
            runs |= load_all(alike, evenly(COUNT, 10, tokens), apart_s=0.01)
        urls = {name: server.url for name, server in zip(ROWS, servers, strict=True)}
    return {name: (runs[name], urls[name]) for name in ROWS}


@pytest.mark.parametrize("name", ROWS)
def test_every_request_is_counted_as_it_was(
    loaded: dict[str, tuple[Loaded, str]], name: str
) -> None:
    (requests, messages), url = loaded[name]
    row = ROWS[name]
    failures = [f"{kind}: {message}" for kind, message in messages.items()]
    assert failures == ([row.failure.format(url=url)] if row.failure else [])
    assert requests["chunk_s"].map(len).tolist() == [row.chunks] * COUNT
    wanted = row.chunks if row.failure else row.tokens
    assert requests["output_tokens"].tolist() == [wanted] * COUNT


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.failure is None])
def test_what_cannot_be_believed_is_doubted_and_nothing_else(
    loaded: dict[str, tuple[Loaded, str]], name: str
) -> None:
    (requests, _), _ = loaded[name]
    assert token_count_warnings(requests) == ROWS[name].doubts


def test_ids_out_of_the_vocabulary_have_a_hint() -> None:
    with mocked(plan("status:code=400,every=2,message=token id out of vocabulary")) as (server,):
        run = run_load_test(completions(server), evenly(2, 20, 2))
    assert hint(run.extra["delivered"]["first_messages"]) == PROMPT_TEXT
    assert f"hint: {PROMPT_TEXT}" in render_report(run)


def test_a_client_that_stands_still_blames_no_server() -> None:
    """When it comes back, the tokens of all answers lie in its sockets."""
    stand_still = iter([0.6])

    def listen(_: Progress) -> None:
        time.sleep(next(stand_still, 0.0))

    options = LoadOptions(lead_s=0.2, progress_every_s=0.25)
    with mocked(plan(ttft_ms=300, itl_ms=10)) as (server,):
        run = run_load_test(
            completions(server), evenly(4, 1000, TOKENS), options=options, on_progress=listen
        )
    assert run.requests["buffered"].isna().any()
    assert run.extra["delivered"]["token_doubts"] == []
