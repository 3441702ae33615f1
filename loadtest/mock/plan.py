"""The plan of a mock endpoint: how fast it answers, and what goes wrong."""

from collections.abc import Iterator
from typing import Any

from loadtest.mock.faults import Fault, Freeze, NotNegative, Refuse
from loadtest.mock.mock_answer import (
    MockAnswer,
    StreamStyle,
    TextPiece,
    stream_events,
    whole_answer,
)
from loadtest.mock.parsed_request import ParsedRequest
from sim.shapes.frozen_model import Count, FrozenModel


class MockPlan(FrozenModel):
    """A plan of answers: the first token after ``ttft_ms``, then one more every ``itl_ms``.

    An answer has the ``max_tokens`` of its request, or ``tokens`` where that is less. ``faults``
    change the answers in the order given.
    """

    model: str = "mock"
    ttft_ms: NotNegative = 100.0
    itl_ms: NotNegative = 20.0
    tokens: Count | None = None
    faults: tuple[Fault, ...] = ()

    @property
    def freezes(self) -> tuple[Freeze, ...]:
        """The faults that freeze the server."""
        return tuple(fault for fault in self.faults if isinstance(fault, Freeze))

    @property
    def refuse_after(self) -> int | None:
        """The number of requests after which connections are refused; None: never."""
        limits = (fault.after for fault in self.faults if isinstance(fault, Refuse))
        return min(limits, default=None)

    def answer(self, request: ParsedRequest) -> MockAnswer:
        """Return the answer to a request."""
        hits = [fault for fault in self.faults if fault.hits(request)]
        pieces, style = self._pieces(request), StreamStyle()
        for fault in hits:
            pieces, style = fault.pieces(pieces, request), fault.style(style)
        if request.stream:
            answer = MockAnswer(events=stream_events(request, self.model, pieces, style))
        else:
            answer = whole_answer(request, self.model, pieces)
        for fault in hits:
            answer = fault.answer(answer)
        return answer

    def card(self) -> dict[str, Any]:
        """Return the card of ``/v1/models``. It has no vocabulary, so prompts come as text."""
        return {"id": self.model, "object": "model", "created": 0, "owned_by": "servetwin"}

    def _pieces(self, request: ParsedRequest) -> Iterator[TextPiece]:
        count = min(request.max_tokens, self.tokens or request.max_tokens)
        finish = "length" if count == request.max_tokens else "stop"
        for index in range(count):
            at_s = (self.ttft_ms + index * self.itl_ms) / 1e3
            ends = finish if index == count - 1 else None
            yield TextPiece(at_s, {"content": f" t{index}"}, 1, ends)
