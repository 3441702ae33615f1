"""What every dialect tells: paths and bodies, abilities, and how to recognise its servers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from loadtest.dialects.native_event import count
from loadtest.dialects.server_probe import ServerProbe

Api = Literal["completions", "chat", "native"]


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """One request, its prompt ready: token ids or text. Lengths are forced where asked for."""

    model: str
    prompt: Sequence[int] | str
    output_tokens: int
    force_length: bool


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a server tells about its model; None where it does not."""

    vocab_size: int | None = None
    max_model_len: int | None = None


class Dialect:
    """How servers of one kind are asked; the first of ``apis`` unless another is wanted.

    ``owners`` are names by which these servers sign their models (``owned_by``). ``guesses_vocab``:
    token ids may be sent although the server does not tell its vocabulary, for it surely takes ids.
    ``usual_model`` is taken where servers list none; ``loads_unlisted``: they serve models that
    they do not list.
    """

    name: ClassVar[str]
    owners: ClassVar[frozenset[str]] = frozenset()
    apis: ClassVar[tuple[Api, ...]]
    takes_ids: ClassVar[bool] = False
    guesses_vocab: ClassVar[bool] = False
    forces_length: ClassVar[bool] = False
    usual_model: ClassVar[str | None] = None
    loads_unlisted: ClassVar[bool] = False

    def recognises(self, server: ServerProbe) -> bool:
        """Whether a page that only these servers have says that it is one."""
        return False

    def models(self, server: ServerProbe) -> list[Mapping[str, Any]]:
        """The cards of the models served, each with its ``id``."""
        return server.models

    def facts(self, server: ServerProbe, card: Mapping[str, Any]) -> ModelFacts:
        """What is told about the model of this card."""
        return ModelFacts(count(card.get("vocab_size")), count(card.get("max_model_len")))

    def path(self, api: Api, model: str) -> str:
        """Where requests are posted, below the server's root."""
        raise NotImplementedError

    def body(self, api: Api, ask: PreparedRequest) -> dict[str, Any]:
        """The JSON that asks for a streamed answer, greedily sampled."""
        raise NotImplementedError
