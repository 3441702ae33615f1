"""The base of all dialects: paths and bodies, abilities, and how to recognise their servers."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from servetwin.loadtest.dialects.native_event import NativeEvent, count
from servetwin.loadtest.dialects.server_probe import ServerProbe

Api = Literal["completions", "chat", "embeddings", "native"]
"""How requests are said to a server: an API of OpenAI, or that of the server itself."""


class PreparedRequest(NamedTuple):
    """A request with its prompt: token ids, text, or on the chat API the messages of a chat.

    ``force_length`` wants the exact length.
    """

    model: str
    prompt: Sequence[int] | str
    output_tokens: int
    force_length: bool
    messages: Sequence[Mapping[str, Any]] = ()

    @property
    def chat(self) -> list[Mapping[str, Any]]:
        """The messages; without any, the prompt as one message of the user."""
        return [*self.messages] or [{"role": "user", "content": self.prompt}]


class ModelFacts(NamedTuple):
    """What a server says about its model; None where it does not."""

    vocab_size: int | None = None
    max_model_len: int | None = None


class Dialect:
    """The protocol of one kind of server. The first of ``apis`` is the default.

    ``owners`` are the names in ``owned_by`` of these servers' models. With ``guesses_vocab`` token
    ids are sent although the vocabulary is unknown, since these servers surely accept ids.
    ``usual_model`` is the model where a server lists none. With ``loads_unlisted`` servers also
    serve models that they do not list. ``mark`` is a field that only events of the native API have.
    """

    name: ClassVar[str]
    owners: ClassVar[frozenset[str]] = frozenset()
    apis: ClassVar[tuple[Api, ...]]
    takes_ids: ClassVar[bool] = False
    guesses_vocab: ClassVar[bool] = False
    forces_length: ClassVar[bool] = False
    usual_model: ClassVar[str | None] = None
    loads_unlisted: ClassVar[bool] = False
    mark: ClassVar[str] = ""

    def recognises(self, server: ServerProbe) -> bool:
        """Return whether a page shows that the server is of this kind."""
        return False

    def models(self, server: ServerProbe) -> list[Mapping[str, Any]]:
        """Return the cards of the models served, each with its ``id``."""
        return server.models

    def facts(self, server: ServerProbe, card: Mapping[str, Any]) -> ModelFacts:
        """Return what the server says about the model of a card."""
        return ModelFacts(count(card.get("vocab_size")), count(card.get("max_model_len")))

    def path(self, api: Api, model: str) -> str:
        """Return the path to which requests are posted, below the server's root."""
        raise NotImplementedError

    def body(self, api: Api, request: PreparedRequest) -> dict[str, object]:
        """Return the JSON body of a request for a streamed answer, sampled greedily."""
        raise NotImplementedError

    def sampled(
        self, api: Api, body: Mapping[str, Any], sampling: Mapping[str, float]
    ) -> dict[str, object]:
        """Return a body with sampling parameters where the API wants them."""
        return {**body, **sampling}

    def read(self, event: dict[str, object]) -> NativeEvent:
        """Read an event of the native API."""
        raise NotImplementedError
