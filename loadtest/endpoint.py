"""What the endpoint is, and how a request of a trace is said to it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from loadtest.credentials import KEY_VARIABLE, redact, sent_headers, shown_headers
from loadtest.dialects.dialect import Api, Dialect, ModelFacts, PreparedRequest
from loadtest.dialects.registry import DIALECTS, dialect_named, dialect_of
from loadtest.dialects.server_probe import TRY, ServerProbe
from workloads.errors import LoadTestError
from workloads.generators.prompts import prompt_text, prompt_token_ids
from workloads.request import Request

__all__ = ["Api", "Endpoint", "Prompt", "client_settings", "probe", "redact"]

Prompt = Literal["ids", "text"]

ASSUMED_VOCAB_SIZE = 32_000
"""For token-id prompts to a server that does not tell: the smallest of today's common models."""

_LISTED = 10


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server and the way it is asked.

    ``base_url`` ends in ``/v1``, whether or not the ``dialect`` has its paths there. ``prompt``
    says whether prompts go as token ids (exact lengths and shared prefixes) or as text of one word
    per token. ``force_length`` asks for exactly the output length of the trace, by the fields that
    the dialect has for that. ``headers`` are those sent beside the usual ones, secrets hidden.
    """

    base_url: str
    model: str
    api: Api = "completions"
    prompt: Prompt = "text"
    vocab_size: int | None = None
    max_model_len: int | None = None
    force_length: bool = True
    salt: int = 0
    """Another salt, other prompts with the same sharing (``workloads.generators.prompts``)."""
    dialect: str = "openai"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where requests are posted."""
        path = DIALECTS[self.dialect].path(self.api, self.model)
        return f"{self.base_url.removesuffix('/v1')}{path}"

    def body(self, request: Request) -> bytes:
        """The JSON body that asks for ``request``."""
        ask = PreparedRequest(
            self.model, self._prompt(request), request.output_tokens, self.force_length
        )
        fields = DIALECTS[self.dialect].body(self.api, ask)
        return json.dumps(fields, separators=(",", ":")).encode()

    def _prompt(self, request: Request) -> list[int] | str:
        if self.prompt == "text" or self.api == "chat":
            return prompt_text(request, self.salt)
        return prompt_token_ids(request, self.vocab_size or ASSUMED_VOCAB_SIZE, salt=self.salt)


def probe(
    url: str,
    *,
    model: str | None = None,
    api: Api | None = None,
    prompt: Literal["ids", "text", "auto"] = "auto",
    force_length: bool = True,
    dialect: str | None = None,
    timeout_s: float = 10.0,
) -> Endpoint:
    """Ask the server what it is and what it serves; ``url`` with or without ``/v1``.

    ``dialect`` and ``api`` default to what is recognised and to the dialect's own first choice.
    ``prompt="auto"`` takes token ids where the server surely takes them. Raises ``LoadTestError``
    when nothing useful answers, the model is not served, or it cannot be asked so.
    """
    wanted = dialect_named(dialect) if dialect else None
    base_url = _base_url(url)
    with httpx.Client(timeout=timeout_s, **client_settings(base_url)) as client:
        server = ServerProbe(base_url.removesuffix("/v1"), client)
        spoken = wanted or dialect_of(server)
        card = _model_card(spoken, server, model, base_url)
        facts = spoken.facts(server, card)
    api = _api(spoken, api)
    return Endpoint(
        base_url=base_url,
        model=card["id"],
        api=api,
        prompt=_prompt_kind(spoken, api, prompt, facts),
        vocab_size=facts.vocab_size,
        max_model_len=facts.max_model_len,
        force_length=force_length and spoken.forces_length,
        dialect=spoken.name,
        headers=shown_headers(),
    )


def client_settings(base_url: str) -> dict[str, Any]:
    """Settings of every httpx client of ours: key and headers, and no proxies on the loopback."""
    headers = {"Accept-Encoding": "identity", **sent_headers()}
    return {"headers": headers, "trust_env": not _is_loopback(httpx.URL(base_url).host)}


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _base_url(url: str) -> str:
    try:
        parsed = httpx.URL(url if "://" in url else f"http://{url}")
    except httpx.InvalidURL as error:
        raise LoadTestError(f"{url!r} is not a URL ({error}); {TRY}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise LoadTestError(f"{url!r} is not an http URL; {TRY}")
    if parsed.userinfo:
        raise LoadTestError(f"the URL must not hold a password; put the key into {KEY_VARIABLE}")
    base = str(parsed.copy_with(query=None, fragment=None)).rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


def _model_card(
    dialect: Dialect, server: ServerProbe, model: str | None, base_url: str
) -> Mapping[str, Any]:
    cards = dialect.models(server)
    if not cards:
        return _unlisted(dialect, server, model)
    for card in cards:
        if model in (None, card["id"]) or f"{model}:latest" == card["id"]:
            return card
    if dialect.loads_unlisted:
        return _unlisted(dialect, server, model)
    served = _listing([card["id"] for card in cards])
    raise LoadTestError(f"--model {model}: not served at {base_url}; it serves {served}")


def _unlisted(dialect: Dialect, server: ServerProbe, model: str | None) -> Mapping[str, Any]:
    """A card for a server without a list of models."""
    name = model or dialect.usual_model
    if name:
        return {"id": name}
    hint = f"{server.complaint}, or name the model with --model"
    raise LoadTestError(hint)


def _listing(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _api(dialect: Dialect, api: Api | None) -> Api:
    if api is None:
        return dialect.apis[0]
    if api not in dialect.apis:
        known = " or ".join(dialect.apis)
        raise LoadTestError(f"--api {api}: the dialect {dialect.name} has {known}")
    return api


def _prompt_kind(
    dialect: Dialect, api: Api, prompt: Literal["ids", "text", "auto"], facts: ModelFacts
) -> Prompt:
    if prompt == "ids" and api == "chat":
        raise LoadTestError("--prompt ids: the chat API takes text only; use --api completions")
    if prompt == "ids" and not dialect.takes_ids:
        raise LoadTestError(f"--prompt ids: the dialect {dialect.name} takes text only")
    if prompt != "auto":
        return prompt
    sure = dialect.guesses_vocab or facts.vocab_size is not None
    return "ids" if sure and dialect.takes_ids and api != "chat" else "text"
