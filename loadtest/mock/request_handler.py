"""Who asks for what: from a request to its answer and the record of it."""

from typing import NamedTuple

from loadtest.mock.http import RequestHead
from loadtest.mock.mock_answer import MockAnswer, error, told
from loadtest.mock.parsed_request import BadRequest, parse_request
from loadtest.mock.plan import MockPlan
from loadtest.mock.truth import Truth

_CHAT = {"/v1/completions": False, "/v1/chat/completions": True}


class Reply(NamedTuple):
    """An answer; requests for text have a ``truth``."""

    answer: MockAnswer
    truth: Truth | None = None


class RequestHandler:
    """Answers requests by the plan and counts those for text, good or bad, in ``asked``."""

    def __init__(self, plan: MockPlan) -> None:
        self._plan = plan
        self.asked = 0

    def reply(self, head: RequestHead, body: bytes, arrival_ns: int) -> Reply:
        """What a request gets."""
        try:
            if head.path in _CHAT:
                return self._text(head, body, arrival_ns)
            return Reply(self._fact(head))
        except BadRequest as bad:
            return refusal(bad)

    def _fact(self, head: RequestHead) -> MockAnswer:
        known = {
            "/v1/models": {"object": "list", "data": [self._plan.card()]},
            "/health": {"status": "ok"},
        }
        if head.path not in known:
            raise BadRequest(404, f"{head.path}: there is {', '.join([*known, *_CHAT])}")
        if head.method != "GET":
            raise BadRequest(405, f"{head.path} takes GET")
        return told(200, known[head.path])

    def _text(self, head: RequestHead, body: bytes, arrival_ns: int) -> Reply:
        if head.method != "POST":
            raise BadRequest(405, f"{head.path} takes POST")
        index, self.asked = self.asked, self.asked + 1
        ask = parse_request(index, _CHAT[head.path], body, self._plan.model)
        return Reply(self._plan.answer(ask), Truth(ask.request_id, arrival_ns, ask.max_tokens))


def refusal(bad: BadRequest) -> Reply:
    """A request that cannot be answered."""
    return Reply(told(bad.status, error(str(bad), "invalid_request_error")))
