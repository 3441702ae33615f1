"""Answers the requests to a mock by its plan, and records what it does."""

from collections.abc import Callable
from typing import NamedTuple

from servetwin.loadtest.mock.clock import ServerClock, Timeline
from servetwin.loadtest.mock.http import RequestHead
from servetwin.loadtest.mock.mock_answer import MockAnswer, error, json_answer
from servetwin.loadtest.mock.parsed_request import BadRequest, parse_embedding, parse_request
from servetwin.loadtest.mock.plan import MockPlan
from servetwin.loadtest.mock.truth import Truth, TruthLog

_CHAT = {"/v1/completions": False, "/v1/chat/completions": True}
_EMBEDDINGS = "/v1/embeddings"


class Reply(NamedTuple):
    """An answer, with a ``truth`` where text was requested."""

    answer: MockAnswer
    truth: Truth | None = None


class RequestHandler:
    """What all connections of a mock share: its plan, its times and its records.

    ``text_requests`` counts the requests for text, good or bad. Once the plan refuses connections,
    ``refuses`` is set and ``on_refuse`` called.
    """

    def __init__(self, plan: MockPlan, truth: TruthLog, timeline: Timeline) -> None:
        self._plan = plan
        self.truth = truth
        self.timeline = timeline
        self.clock = ServerClock(plan.freezes)
        self.text_requests = 0
        self.refuses = plan.refuse_after == 0
        self.on_refuse: Callable[[], None] = lambda: None

    def reply(self, head: RequestHead, body: bytes, arrival_ns: int) -> Reply:
        """Return the answer to a request that came at ``arrival_ns``."""
        reply = self._reply(head, body, arrival_ns)
        if reply.truth:
            self.clock.start(arrival_ns)
            self.truth.begin(reply.truth)
        if self.text_requests == self._plan.refuse_after:
            self.refuses = True
            self.on_refuse()
        return reply

    def _reply(self, head: RequestHead, body: bytes, arrival_ns: int) -> Reply:
        try:
            if head.path in (*_CHAT, _EMBEDDINGS):
                return self._text(head, body, arrival_ns)
            return Reply(self._fact(head))
        except BadRequest as bad:
            return refusal(bad)

    def _fact(self, head: RequestHead) -> MockAnswer:
        known = {
            "/v1/models": {"object": "list", "data": self._plan.cards()},
            "/health": {"status": "ok"},
        }
        if head.path not in known:
            raise BadRequest(
                404, f"{head.path}: there is {', '.join([*known, *_CHAT, _EMBEDDINGS])}"
            )
        if head.method != "GET":
            raise BadRequest(405, f"{head.path} takes GET")
        return json_answer(200, known[head.path])

    def _text(self, head: RequestHead, body: bytes, arrival_ns: int) -> Reply:
        if head.method != "POST":
            raise BadRequest(405, f"{head.path} takes POST")
        index, self.text_requests = self.text_requests, self.text_requests + 1
        if head.path == _EMBEDDINGS:
            parsed = parse_embedding(index, body, self._plan.models)
            answer = self._plan.embedding(parsed)
        else:
            parsed = parse_request(index, _CHAT[head.path], body, self._plan.models)
            answer = self._plan.answer(parsed)
        return Reply(answer, Truth(parsed.request_id, arrival_ns, parsed.max_tokens))


def refusal(bad: BadRequest) -> Reply:
    """Return the answer to a request that cannot be served."""
    return Reply(json_answer(bad.status, error(str(bad), "invalid_request_error")))
