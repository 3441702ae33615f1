"""An endpoint: which server and model, its TLS, and the HTTP body of a request to it."""

import json
import os
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx

from servetwin.loadtest.body.options import PLAIN, BodyOptions, check_options, request_body
from servetwin.loadtest.credentials import KEY_VARIABLE, sent_headers
from servetwin.loadtest.dialects.dialect import Api, Dialect, ModelFacts, PreparedRequest
from servetwin.loadtest.dialects.server_probe import TRY, ServerProbe
from servetwin.loadtest.dialects.servers import DIALECTS, dialect_named, dialect_of
from servetwin.loadtest.redaction import redact, shown_headers
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.prompts import prompt_text
from servetwin.workloads.program.loopback import is_loopback
from servetwin.workloads.request import Request

__all__ = ["Api", "Endpoint", "Prompt", "client_settings", "endpoint_url", "probe"]

# What prompts are sent as: token ids, or text.
Prompt = Literal["ids", "text"]

# For prompts of token ids where the vocabulary is unknown: servers refuse ids beyond it.
ASSUMED_VOCAB_SIZE = 1_000

LARGEST_PORT = 65_535
_LISTED = 10
# Stands for a generated prompt, which is JSON as it is, until the rest of a body is JSON too.
_PLACE = -(2**62)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model on a server, and the form of the requests to it.

    ``base_url`` ends in ``/v1``, whether or not the ``dialect`` has its paths there. ``prompt``
    says whether prompts are sent as token ids (exact lengths and shared prefixes) or as text of one
    word per token; a real prompt of a request is sent as it is. ``force_length`` requests exactly
    the output length of the trace, with the fields that the dialect has for it. ``headers`` are the
    extra headers, their values hidden.
    """

    base_url: str
    model: str
    api: Api = "completions"
    prompt: Prompt = "text"
    vocab_size: int | None = None
    max_model_len: int | None = None
    force_length: bool = True
    salt: str | None = None
    """Changes all prompts and keeps what they share (``workloads.generators.prompts``); None lets
    every load test take a new one."""
    dialect: str = "openai"
    headers: Mapping[str, str] = field(default_factory=dict)
    insecure: bool = False
    """Accepts every certificate of the server."""
    options: BodyOptions = PLAIN
    """What bodies have beside model, prompt and length."""

    @property
    def url(self) -> str:
        """The URL to which requests are posted."""
        path = DIALECTS[self.dialect].path(self.api, self.model)
        return f"{self.base_url.removesuffix('/v1')}{path}"

    def body(self, request: Request) -> bytes:
        """Return the JSON body of a request."""
        messages = () if isinstance(request.prompt, str) else request.prompt or ()
        prepared = PreparedRequest(
            self.model_of(request),
            "" if messages else self._prompt(request),
            request.output_tokens,
            self.force_length,
            messages,
        )
        name = f"{self.salt or ''}/{request.request_id}"
        fields = request_body(DIALECTS[self.dialect], self.api, prepared, self.options, name)
        body = json.dumps(fields, separators=(",", ":")).encode()
        if request.prompt is not None:
            return body
        vocab_size = None if self._takes_text else self.vocab_size or ASSUMED_VOCAB_SIZE
        prompt = prompt_text(request, self.salt or "", vocab_size)
        return body.replace(str(_PLACE).encode(), prompt.encode(), 1)

    def model_of(self, request: Request) -> str:
        """Return the model of a request: a LoRA module by its share, else that of the endpoint."""
        lora = self.options.lora
        return (lora and lora.module(request.request_id)) or self.model

    def salted(self, *load: object) -> "Endpoint":
        """Return the endpoint with the prompts of one load, which no other load has.

        The salt is that of the endpoint, or else random, and the name of the ``load``.
        """
        salt = secrets.token_hex(4) if self.salt is None else self.salt
        return replace(self, salt="/".join([salt, *map(str, load)]))

    def _prompt(self, request: Request) -> list[int] | str:
        if isinstance(request.prompt, str):
            return request.prompt
        return str(_PLACE) if self._takes_text else [_PLACE]

    @property
    def _takes_text(self) -> bool:
        return self.prompt == "text" or self.api == "chat"


def probe(
    url: str,
    *,
    model: str | None = None,
    api: Api | None = None,
    prompt: Literal["ids", "text", "auto"] = "auto",
    force_length: bool = True,
    dialect: str | None = None,
    insecure: bool = False,
    salt: str | None = None,
    options: BodyOptions = PLAIN,
    timeout_s: float = 10.0,
) -> Endpoint:
    """Find out which server and model are at ``url`` (with or without ``/v1``).

    ``dialect`` defaults to the one recognised, ``api`` to the first one of the dialect.
    ``prompt="auto"`` chooses token ids where the server surely accepts them. Raises
    ``LoadTestError`` when nothing useful answers, the model is not served, or the server does not
    support the api or the form of prompts.
    """
    wanted = dialect_named(dialect) if dialect else None
    base_url = endpoint_url(url)
    settings = client_settings(base_url, insecure=insecure)
    with httpx.Client(timeout=timeout_s, **settings) as client:
        server = ServerProbe(base_url.removesuffix("/v1"), client)
        server_dialect = wanted or dialect_of(server)
        card = _model_card(server_dialect, server, model, base_url)
        facts = server_dialect.facts(server, card)
        listed = [card["id"] for card in server_dialect.models(server)]
    api = _api(server_dialect, api)
    check_options(options, api, [] if server_dialect.loads_unlisted else listed)
    return Endpoint(
        base_url=base_url,
        model=card["id"],
        api=api,
        prompt=_prompt_kind(server_dialect, api, prompt, facts),
        vocab_size=facts.vocab_size,
        max_model_len=facts.max_model_len,
        force_length=force_length and server_dialect.forces_length,
        salt=salt,
        dialect=server_dialect.name,
        headers=shown_headers(),
        insecure=insecure,
        options=options,
    )


def client_settings(base_url: str, *, insecure: bool = False) -> dict[str, Any]:
    """Return the settings of an httpx client: key and headers, and no proxy on the loopback.

    ``insecure`` verifies no certificate. Plain HTTP without a proxy has none, so no authorities
    are loaded for it. Raises ``LoadTestError`` for what is no http URL.
    """
    url = server_url(base_url)
    headers = {"Accept-Encoding": "identity", **sent_headers()}
    may_have_proxy = not is_loopback(url.host)
    has_tls = may_have_proxy or url.scheme == "https"
    verify = tls_context(insecure=insecure) if has_tls else False
    return {"headers": headers, "trust_env": may_have_proxy, "verify": verify}


def server_url(text: str, right: str = TRY) -> httpx.URL:
    """Return the URL of a server; the scheme defaults to http.

    Raises ``LoadTestError`` for what is no http URL, or has a host or a port that cannot exist.
    """
    try:
        url = httpx.URL(text if "://" in text else f"http://{text}")
    except httpx.InvalidURL as error:
        raise LoadTestError(f"{text!r} is not a URL ({error}); {right}") from error
    if url.userinfo:
        raise LoadTestError(f"the URL must not hold a password; put the key into {KEY_VARIABLE}")
    if url.scheme not in ("http", "https") or not url.host:
        raise LoadTestError(f"{text!r} is not an http URL; {right}")
    if url.port is not None and not 0 < url.port <= LARGEST_PORT:
        raise LoadTestError(f"{text!r}: a port is from 1 to {LARGEST_PORT}")
    try:
        url.raw_host.decode("ascii").encode("idna")
    except UnicodeError:
        raise LoadTestError(f"{text!r}: each part of a host has from 1 to 63 characters") from None
    return url


def endpoint_url(text: str) -> str:
    """Return the URL of a server as it is used, with ``/v1``. Raises ``LoadTestError``."""
    base = str(server_url(text).copy_with(query=None, fragment=None)).rstrip("/")
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
    served = ", ".join(card["id"] for card in cards[:_LISTED])
    if len(cards) > _LISTED:
        served += f" and {len(cards) - _LISTED} more"
    raise LoadTestError(f"--model {model}: not served at {base_url}; it serves {redact(served)}")


def _unlisted(dialect: Dialect, server: ServerProbe, model: str | None) -> Mapping[str, Any]:
    """Return a card for a model that the server does not list."""
    if name := model or dialect.usual_model:
        return {"id": name}
    raise LoadTestError(f"{server.complaint}, or name the model with --model")


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
    textual = api in ("chat", "embeddings")
    return "ids" if sure and dialect.takes_ids and not textual else "text"


_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def tls_context(*, insecure: bool) -> ssl.SSLContext:
    """Return a context that trusts the authorities of ``SSL_CERT_FILE`` or ``SSL_CERT_DIR``, else
    those of certifi; an ``insecure`` one trusts every server.

    Raises ``LoadTestError`` where the variable names no certificates.
    """
    try:
        return httpx.create_ssl_context(verify=not insecure)
    except OSError as error:
        named = next((name for name in _VARIABLES if os.environ.get(name)), "TLS")
        reason = error.strerror or str(error)
        raise LoadTestError(
            f"{named} {os.environ.get(named, '')}: no certificates can be read there ({reason}); "
            "name a file in PEM format"
        ) from error
