"""A fault: a change to the answers to some requests."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from loadtest.mock.mock_answer import MockAnswer, StreamStyle, TextPiece
from loadtest.mock.parsed_request import ParsedRequest
from sim.shapes.frozen_model import Count, FrozenModel

NotNegative = Annotated[float, Field(ge=0)]
Tokens = Annotated[int, Field(ge=0)]


class Fault(FrozenModel):
    """A fault; its fields are the keys of ``--fault NAME:KEY=VALUE``.

    An answer is made in three stages, and a fault may change each: the pieces of text, the style
    of their events, and the answer as a whole.
    """

    name: ClassVar[str]

    def hits(self, request: ParsedRequest) -> bool:
        """Return whether the answer to this request has the fault."""
        return True

    def pieces(self, pieces: Iterator[TextPiece], request: ParsedRequest) -> Iterator[TextPiece]:
        """Return the pieces of text as this fault changes them."""
        return pieces

    def style(self, style: StreamStyle) -> StreamStyle:
        """Return the style of the events as this fault changes it."""
        return style

    def answer(self, answer: MockAnswer) -> MockAnswer:
        """Return the answer as this fault changes it."""
        return answer


class EveryNth(Fault):
    """A fault of every n-th request, ``every`` being n."""

    every: Count = 1

    def hits(self, request: ParsedRequest) -> bool:
        """Return whether the request is an n-th one in the order of arrival."""
        return (request.index + 1) % self.every == 0
