"""What a fault is: a change to the answers of some requests."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from loadtest.mock.mock_answer import MockAnswer, StreamStyle, TextPiece
from loadtest.mock.parsed_request import ParsedRequest
from sim.shapes.frozen_model import Count, FrozenModel

NotNegative = Annotated[float, Field(ge=0)]
Tokens = Annotated[int, Field(ge=0)]

__all__ = ["Count", "EveryNth", "Fault", "NotNegative", "Tokens"]


class Fault(FrozenModel):
    """One fault; its fields are the keys of ``--fault NAME:KEY=VALUE``.

    An answer is made in three stages, and a fault may change each: the pieces of text, the style
    in which they are written down, and the answer. A fault without effect on a stage leaves it.
    """

    name: ClassVar[str]

    def hits(self, ask: ParsedRequest) -> bool:
        """Whether this request is answered with the fault."""
        return True

    def pieces(self, pieces: Iterator[TextPiece], ask: ParsedRequest) -> Iterator[TextPiece]:
        """The text."""
        return pieces

    def style(self, style: StreamStyle) -> StreamStyle:
        """How it is written down."""
        return style

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """What goes out."""
        return answer


class EveryNth(Fault):
    """A fault that hits the ``every``-th request, and each ``every`` after it."""

    every: Count = 1

    def hits(self, ask: ParsedRequest) -> bool:
        """Counted in the order of arrival."""
        return (ask.index + 1) % self.every == 0
