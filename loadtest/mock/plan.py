"""The plan of a mock endpoint: how fast it answers, and what goes wrong."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from servetwin.loadtest.mock.faults import FAULTS, Fault, Freeze, NotNegative, Refuse
from servetwin.loadtest.mock.mock_answer import (
    MockAnswer,
    StreamStyle,
    TextPiece,
    embedding_answer,
    stream_events,
    whole_answer,
)
from servetwin.loadtest.mock.parsed_request import ParsedRequest
from servetwin.sim.catalogue.entry import Count, FrozenModel
from servetwin.workloads.errors import MockError, require_name
from servetwin.workloads.plugins import split_settings
from servetwin.workloads.program.key_values import key_values

_Part = TypeVar("_Part", bound=FrozenModel)


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

    def answer(self, request: ParsedRequest) -> MockAnswer:
        """Return the answer to a request; an embedding comes at the time of a first token."""
        hits = [fault for fault in self.faults if fault.hits(request)]
        if request.field == "input":
            answer = embedding_answer(request, self.ttft_ms / 1e3)
        else:
            answer = self._text(request, hits)
        for fault in hits:
            answer = fault.answer(answer)
        return answer

    def _text(self, request: ParsedRequest, faults: Sequence[Fault]) -> MockAnswer:
        pieces, style = self._pieces(request), StreamStyle()
        for fault in faults:
            pieces, style = fault.pieces(pieces, request), fault.style(style)
        if request.stream and not style.whole:
            return MockAnswer(events=stream_events(request, pieces, style))
        return whole_answer(request, pieces)

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models."""
        return (self.model, *self.lora_modules)

    def cards(self) -> list[dict[str, Any]]:
        """Return the cards of ``/v1/models``. They have no vocabulary, so prompts come as text."""
        fixed = {"object": "model", "created": 0, "owned_by": "servetwin"}
        return [{"id": name, **fixed} for name in self.models]

    def _pieces(self, request: ParsedRequest) -> Iterator[TextPiece]:
        count = min(request.max_tokens, self.tokens or request.max_tokens)
        finish = "length" if count == request.max_tokens else "stop"
        for index in range(count):
            at_s = (self.ttft_ms + index * self.itl_ms) / 1e3
            ends = finish if index == count - 1 else None
            yield TextPiece(at_s, {"content": f" t{index}"}, 1, ends)


def parse_fault(text: str, where: str = "--fault") -> Fault:
    """Read a fault: its name, and its settings after a colon (``cut:every=2,after=8``).

    Raises ``MockError`` naming ``where``, the part that is wrong and what is valid.
    """
    name, settings = split_settings(text)
    require_name(name, FAULTS, f"{where}: unknown fault", MockError)
    where = f"{where} {name}"
    return _build(FAULTS[name], key_values(settings, where, MockError), where)


def mock_plan(options: Mapping[str, Any]) -> MockPlan:
    """Return the plan of options by field. Raises ``MockError`` naming the field."""
    return _build(MockPlan, options, "--mock")


def _build(kind: type[_Part], settings: Mapping[str, Any], where: str) -> _Part:
    for key in settings:
        others = f"known are {', '.join(kind.model_fields) or 'none'}"
        require_name(str(key), kind.model_fields, f"{where}: unknown key", MockError, others)
    try:
        return kind(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise MockError(f"{where}: {key}: {first['input']!r}: {first['msg']}") from error
