"""Faults that make an answer fail: late, broken, refused, or missing."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from loadtest.mock.fault import EveryNth, Fault, NotNegative, Tokens
from loadtest.mock.mock_answer import (
    MockAnswer,
    StreamStyle,
    TimedWrite,
    encode,
    error,
    json_answer,
    sse,
)
from loadtest.mock.parsed_request import ParsedRequest
from sim.shapes.frozen_model import Count

_PAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
_HALF = b'data: {"id":"mock","choices":[{"index":0,"te'


class Freeze(Fault):
    """The whole server stands still for ``for_s``, ``at_s`` after the first request came.

    Nothing is written meanwhile; afterwards everything that was due is late by as much.
    """

    name: ClassVar[str] = "freeze"
    at_s: NotNegative = 2.0
    for_s: NotNegative = 2.0


class SlowStart(Fault):
    """The first requests are answered ``extra_ms`` later, as by a cold server."""

    name: ClassVar[str] = "slow-start"
    requests: Count = 1
    extra_ms: NotNegative = 1000.0

    def hits(self, request: ParsedRequest) -> bool:
        """Return whether the request is one of the first to arrive."""
        return request.index < self.requests

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Delay the answer."""
        return answer.delayed(self.extra_ms / 1e3)


class Cut(EveryNth):
    """The connection closes after ``after`` tokens."""

    name: ClassVar[str] = "cut"
    after: Tokens = 8

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Cut the answer."""
        return replace(answer, events=_until(answer, self.after), ending="cut")


class ErrorObject(EveryNth):
    """An error object comes after ``after`` tokens, then the connection closes."""

    name: ClassVar[str] = "error"
    after: Tokens = 8

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Cut the answer and append the error."""
        return replace(answer, events=self._events(answer), ending="cut")

    def _events(self, answer: MockAnswer) -> Iterator[TimedWrite]:
        at_s = 0.0
        for event in _until(answer, self.after):
            at_s = event.at_s
            yield event
        failure = {"object": "error", **error("the mock is set to fail", "server_error")}
        yield TimedWrite(at_s, sse(encode(failure), StreamStyle()))


class Status(EveryNth):
    """An HTTP status other than 200, at once; ``retry_after_s`` adds the header Retry-After."""

    name: ClassVar[str] = "status"
    code: Annotated[int, Field(ge=400, le=599)] = 500
    retry_after_s: Tokens | None = None

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Replace the answer with an error object."""
        wait = self.retry_after_s
        headers = {} if wait is None else {"Retry-After": str(wait)}
        kind = "rate_limit_exceeded" if self.code == 429 else "server_error"
        return json_answer(
            self.code, error(f"the mock is set to answer {self.code}", kind), headers
        )


class Garbage(EveryNth):
    """Status 200 and a page of HTML, or an event that ends in the middle of its JSON."""

    name: ClassVar[str] = "garbage"
    kind: Literal["html", "json"] = "html"

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Replace the answer."""
        if self.kind == "html":
            return MockAnswer(
                headers={"Content-Type": "text/html"}, events=[TimedWrite(0.0, _PAGE)]
            )
        return replace(answer, events=[TimedWrite(0.0, _HALF + b"\n\n")])


class Never(EveryNth):
    """No answer, not even a status; the connection stays open."""

    name: ClassVar[str] = "never"

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Replace the answer with silence."""
        return MockAnswer(ending="silent")


class Refuse(Fault):
    """After ``after`` requests no connection is accepted, and idle ones close."""

    name: ClassVar[str] = "refuse"
    after: Tokens = 0


FAILURES = (Freeze, SlowStart, Cut, ErrorObject, Status, Garbage, Never, Refuse)


def _until(answer: MockAnswer, tokens: int) -> Iterator[TimedWrite]:
    made = 0
    for event in answer.events:
        made += event.tokens
        if made > tokens:
            return
        yield event
