"""The base of all dialects: paths, bodies and events, and how to recognise their servers."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from servetwin.loadtest.dialects.server_probe import ServerProbe
from servetwin.workloads.program.package import shipped_json

# The API that requests use: one of OpenAI's, or the server's own.
Api = Literal["completions", "chat", "embeddings", "native"]


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


class NativeEvent(NamedTuple):
    """One event of a native stream.

    ``tokens`` are the tokens in this event, ``made`` those in it and all events before it; None
    where the server does not say. With neither, an event holds one token if it has ``text``.
    ``ends`` marks the last event, ``error`` a failure. ``usage`` has OpenAI's names.
    """

    tokens: int | None = None
    made: int | None = None
    text: bool = False
    ends: bool = False
    usage: Mapping[str, Any] | None = None
    response_id: str = ""
    error: str | None = None


def usage_of(prompt: object, completion: object, cached: object = None) -> dict[str, object]:
    """Return OpenAI's usage object with the counts that are known."""
    counts = {"prompt_tokens": count(prompt), "completion_tokens": count(completion)}
    usage: dict[str, object] = {name: known for name, known in counts.items() if known is not None}
    if (tokens := count(cached)) is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": tokens}
    return usage


def count(value: object) -> int | None:
    """Return a whole number from 0 on; None for any other value."""
    return value if type(value) is int and value >= 0 else None


_FILE: dict[str, Any] = shipped_json("loadtest/dialects/servers.json")
_PATHS: dict[str, str] = _FILE["paths"]
SERVERS: Mapping[str, dict[str, Any]] = _FILE["servers"]


class Dialect:
    """The protocol of one kind of server: OpenAI's API, and at ``native_path`` one of its own.

    What has a type here is in ``servers.json``, by ``name``. The first of ``apis`` is the default.
    ``owners`` are the names in ``owned_by`` of these servers' models. With ``guesses_vocab`` token
    ids are sent although the vocabulary is unknown, since these servers surely accept ids.
    ``usual_model`` is the model where a server lists none. With ``loads_unlisted`` servers also
    serve models that they do not list. ``endless`` are the fields that ignore the end of an answer,
    where a server knows no minimum. ``mark`` is a field that only events of the native API have.
    ``sampling_field`` is the object of the native body with the sampling parameters; without one
    they are fields of the body itself.
    """

    name: str
    apis: Sequence[Api]
    owners: Sequence[str]
    takes_ids: bool
    guesses_vocab: bool
    forces_length: bool
    endless: Mapping[str, object]
    usual_model: str | None
    loads_unlisted: bool
    stream_options: Mapping[str, bool]
    native_path: str
    sampling_field: str
    mark: str

    def __init__(self, name: str) -> None:
        vars(self).update(_FILE["usual"] | SERVERS[name], name=name)

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
        return self.native_path.format(model=model) if api == "native" else _PATHS[api]

    def body(self, api: Api, request: PreparedRequest) -> dict[str, object]:
        """Return the JSON body of a request for a streamed answer, sampled greedily."""
        if api == "native":
            return self.native_body(request)
        if api == "embeddings":
            return {"model": request.model, "input": request.prompt}
        return {
            "model": request.model,
            **({"messages": request.chat} if api == "chat" else {"prompt": request.prompt}),
            "max_tokens": request.output_tokens,
            **(self.exactly(request.output_tokens) if request.force_length else {}),
            "temperature": 0,
            "stream": True,
            "stream_options": self.stream_options,
        }

    def exactly(self, output_tokens: int) -> dict[str, object]:
        """Return the fields that force the output length; some servers know no minimum."""
        return dict(self.endless) or {"min_tokens": output_tokens, "ignore_eos": True}

    def sampled(
        self, api: Api, body: Mapping[str, Any], sampling: Mapping[str, float]
    ) -> dict[str, object]:
        """Return a body with sampling parameters where the API wants them."""
        if api == "native" and (name := self.sampling_field):
            return {**body, name: {**body[name], **sampling}}
        return {**body, **sampling}

    def native_body(self, request: PreparedRequest) -> dict[str, object]:
        """Return the body of the native API, that a dialect with a ``native_path`` defines."""
        raise NotImplementedError

    def read(self, event: dict[str, object]) -> NativeEvent:
        """Read an event of the native API, which a dialect with a ``native_path`` defines."""
        raise NotImplementedError
