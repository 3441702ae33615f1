"""The plan of a mock endpoint: how fast it answers, and what goes wrong."""

from collections.abc import Iterator
from typing import Any

from loadtest.mock.failures import Freeze, Refuse
from loadtest.mock.fault import Fault, NotNegative
from loadtest.mock.mock_answer import MockAnswer, StreamStyle, TextPiece, streamed, whole
from loadtest.mock.parsed_request import ParsedRequest
from sim.shapes.frozen_model import Count, FrozenModel


class MockPlan(FrozenModel):
    """How fast answers come: the first token after ``ttft_ms``, then one more every ``itl_ms``.

    An answer has the ``max_tokens`` asked for, or ``tokens`` where that is less. ``faults`` change
    the answers in the order given.
    """

    model: str = "mock"
    ttft_ms: NotNegative = 100.0
    itl_ms: NotNegative = 20.0
    tokens: Count | None = None
    faults: tuple[Fault, ...] = ()

    @property
    def freezes(self) -> tuple[Freeze, ...]:
        """When the server stands still."""
        return tuple(fault for fault in self.faults if isinstance(fault, Freeze))

    @property
    def refuse_after(self) -> int | None:
        """How many requests there are before connections are refused; None: no end."""
        limits = (fault.after for fault in self.faults if isinstance(fault, Refuse))
        return min(limits, default=None)

    def answer(self, ask: ParsedRequest) -> MockAnswer:
        """What this request gets."""
        hits = [fault for fault in self.faults if fault.hits(ask)]
        pieces, style = self._pieces(ask), StreamStyle()
        for fault in hits:
            pieces, style = fault.pieces(pieces, ask), fault.style(style)
        if ask.stream:
            answer = streamed(ask, self.model, pieces, style)
        else:
            answer = whole(ask, self.model, pieces)
        for fault in hits:
            answer = fault.answer(answer)
        return answer

    def card(self) -> dict[str, Any]:
        """Of ``/v1/models``. A mock has no vocabulary to tell: prompts come as text."""
        return {"id": self.model, "object": "model", "created": 0, "owned_by": "servetwin"}

    def _pieces(self, ask: ParsedRequest) -> Iterator[TextPiece]:
        count = min(ask.max_tokens, self.tokens or ask.max_tokens)
        finish = "length" if count == ask.max_tokens else "stop"
        for index in range(count):
            at_s = (self.ttft_ms + index * self.itl_ms) / 1e3
            ends = finish if index == count - 1 else None
            yield TextPiece(at_s, {"content": f" t{index}"}, 1, ends)
