"""The plan of a mock endpoint: how fast it answers, and what goes wrong."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servetwin.loadtest.mock import mock_answer
from servetwin.loadtest.mock.faults import FAULTS, Fault, Freeze, Refuse
from servetwin.loadtest.mock.parsed_request import ParsedRequest
from servetwin.sim.catalogue.entry import Count, FrozenModel, NotNegative, made_entry, parse_entry


class MockPlan(FrozenModel):
    """A plan of answers: the first token after ``ttft_ms``, then one more every ``itl_ms``.

    An answer has the ``max_tokens`` of its request, or ``tokens`` where that is less. ``faults``
    change the answers in the order given. ``lora_modules`` are further models, served alike.
    """

    model: str = "mock"
    ttft_ms: NotNegative = 100.0
    itl_ms: NotNegative = 20.0
    tokens: Count | None = None
    faults: tuple[Fault, ...] = ()
    lora_modules: tuple[str, ...] = ()

    @property
    def freezes(self) -> tuple[Freeze, ...]:
        """The faults that freeze the server."""
        return tuple(fault for fault in self.faults if isinstance(fault, Freeze))

    @property
    def refuse_after(self) -> int | None:
        """The number of requests after which connections are refused; None: never."""
        limits = (fault.after for fault in self.faults if isinstance(fault, Refuse))
        return min(limits, default=None)

    def answer(self, request: ParsedRequest) -> mock_answer.MockAnswer:
        """Return the answer to a request; an embedding comes at the time of a first token."""
        hits = [fault for fault in self.faults if fault.hits(request)]
        if request.field == "input":
            answer = mock_answer.embedding_answer(request, self.ttft_ms / 1e3)
        else:
            answer = self._text(request, hits)
        for fault in hits:
            answer = fault.answer(answer)
        return answer

    def _text(self, request: ParsedRequest, faults: Sequence[Fault]) -> mock_answer.MockAnswer:
        pieces, style = self._pieces(request), mock_answer.StreamStyle()
        for fault in faults:
            pieces, style = fault.pieces(pieces, request), fault.style(style)
        if request.stream and not style.whole:
            return mock_answer.MockAnswer(events=mock_answer.stream_events(request, pieces, style))
        return mock_answer.whole_answer(request, pieces)

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models."""
        return (self.model, *self.lora_modules)

    def cards(self) -> list[dict[str, Any]]:
        """Return the cards of ``/v1/models``. They have no vocabulary, so prompts come as text."""
        fixed = {"object": "model", "created": 0, "owned_by": "servetwin"}
        return [{"id": name, **fixed} for name in self.models]

    def _pieces(self, request: ParsedRequest) -> Iterator[mock_answer.TextPiece]:
        count = min(request.max_tokens, self.tokens or request.max_tokens)
        finish = "length" if count == request.max_tokens else "stop"
        for index in range(count):
            at_s = (self.ttft_ms + index * self.itl_ms) / 1e3
            ends = finish if index == count - 1 else None
            yield mock_answer.TextPiece(at_s, {"content": f" t{index}"}, 1, ends)


def parse_fault(text: str, where: str = "--fault") -> Fault:
    """Read a fault: its name, and its settings after a colon (``cut:every=2,after=8``)."""
    return parse_entry(text, FAULTS, where, "fault")


def mock_plan(options: Mapping[str, Any]) -> MockPlan:
    """Return the plan of options by field. Raises ``PolicyError`` naming the field."""
    return made_entry(MockPlan, options, "--mock")
