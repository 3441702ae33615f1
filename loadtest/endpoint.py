"""What the endpoint is, and how a request of a trace is said to it."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from workloads.errors import LoadTestError, Unreachable
from workloads.prompts import prompt_text, prompt_token_ids
from workloads.request import Request

Api = Literal["completions", "chat"]
Prompt = Literal["ids", "text"]

KEY_VARIABLE = "OPENAI_API_KEY"
ASSUMED_VOCAB_SIZE = 32_000
"""For token-id prompts to a server that does not tell: the smallest of today's common models."""

_TRY = "give the URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server and the way it is asked.

    ``base_url`` ends in ``/v1``. ``prompt`` says whether prompts go as token ids (exact lengths and
    shared prefixes) or as text of one word per token. ``force_length`` asks for exactly the output
    length of the trace through ``min_tokens`` and ``ignore_eos``, which are vLLM's extensions.
    """

    base_url: str
    model: str
    api: Api = "completions"
    prompt: Prompt = "text"
    vocab_size: int | None = None
    max_model_len: int | None = None
    force_length: bool = True
    salt: int = 0
    """Another salt, other prompts with the same sharing (``workloads.prompts``)."""

    @property
    def url(self) -> str:
        """Where requests are posted."""
        return f"{self.base_url}/{'chat/completions' if self.api == 'chat' else 'completions'}"

    def body(self, request: Request) -> bytes:
        """The JSON body that asks for ``request``."""
        lengths: dict[str, Any] = {"max_tokens": request.output_tokens}
        if self.force_length:
            lengths |= {"min_tokens": request.output_tokens, "ignore_eos": True}
        fields = {
            "model": self.model,
            **self._prompt(request),
            **lengths,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    def _prompt(self, request: Request) -> dict[str, Any]:
        if self.api == "chat":
            return {"messages": [{"role": "user", "content": prompt_text(request, self.salt)}]}
        if self.prompt == "ids":
            vocab_size = self.vocab_size or ASSUMED_VOCAB_SIZE
            return {"prompt": prompt_token_ids(request, vocab_size, salt=self.salt)}
        return {"prompt": prompt_text(request, self.salt)}


def probe(
    url: str,
    *,
    model: str | None = None,
    api: Api = "completions",
    prompt: Literal["ids", "text", "auto"] = "auto",
    force_length: bool = True,
    timeout_s: float = 10.0,
) -> Endpoint:
    """Ask ``/v1/models`` what is served there; ``url`` may be given with or without ``/v1``.

    ``prompt="auto"`` takes token ids where the server tells its vocabulary size. Raises
    ``LoadTestError`` when nothing useful answers or the model is not served.
    """
    if api == "chat" and prompt == "ids":
        raise LoadTestError("--prompt ids: the chat API takes text only; use --api completions")
    base_url = _base_url(url)
    card = _model_card(_models(base_url, timeout_s), model, base_url)
    vocab_size = _count(card.get("vocab_size"))
    takes_ids = api == "completions" and (vocab_size is not None or prompt == "ids")
    return Endpoint(
        base_url=base_url,
        model=card["id"],
        api=api,
        prompt="ids" if takes_ids and prompt != "text" else "text",
        vocab_size=vocab_size,
        max_model_len=_count(card.get("max_model_len")),
        force_length=force_length,
    )


def client_settings(base_url: str) -> dict[str, Any]:
    """Settings of every httpx client of ours: the key, and no proxies on the loopback."""
    headers = {"Accept-Encoding": "identity"}
    if key := os.environ.get(KEY_VARIABLE):
        headers["Authorization"] = f"Bearer {key}"
    return {"headers": headers, "trust_env": not _is_loopback(httpx.URL(base_url).host)}


def redact(text: str) -> str:
    """One line of the server's text, without the API key should it repeat it."""
    key = os.environ.get(KEY_VARIABLE)
    return " ".join((text.replace(key, "***") if key else text).split())


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _base_url(url: str) -> str:
    try:
        parsed = httpx.URL(url if "://" in url else f"http://{url}")
    except httpx.InvalidURL as error:
        raise LoadTestError(f"{url!r} is not a URL ({error}); {_TRY}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise LoadTestError(f"{url!r} is not an http URL; {_TRY}")
    if parsed.userinfo:
        raise LoadTestError(f"the URL must not hold a password; put the key into {KEY_VARIABLE}")
    base = str(parsed.copy_with(query=None, fragment=None)).rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


def _models(base_url: str, timeout_s: float) -> list[Any]:
    asked = f"GET {base_url}/models"
    try:
        with httpx.Client(timeout=timeout_s, **client_settings(base_url)) as client:
            answer = client.get(f"{base_url}/models")
    except httpx.HTTPError as error:
        reason = redact(str(error)) or type(error).__name__
        raise Unreachable(f"{asked}: {reason}; is the server running? {_TRY}") from error
    if answer.status_code in (401, 403):
        hint = f"set {KEY_VARIABLE} to a key that it accepts"
        raise LoadTestError(f"{asked}: answered {answer.status_code}; {hint}")
    if answer.status_code != 200:
        raise LoadTestError(f"{asked}: answered {answer.status_code}; {_TRY}")
    try:
        models = answer.json()["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise LoadTestError(f"{asked}: the answer is no list of models; {_TRY}") from error
    if not isinstance(models, list):
        raise LoadTestError(f"{asked}: the answer is no list of models; {_TRY}")
    return models


def _model_card(models: list[Any], model: str | None, base_url: str) -> Mapping[str, Any]:
    cards = [m for m in models if isinstance(m, Mapping) and isinstance(m.get("id"), str)]
    if not cards:
        raise LoadTestError(f"GET {base_url}/models: no model is served there")
    for card in cards:
        if model in (None, card["id"]):
            return card
    served = ", ".join(card["id"] for card in cards)
    raise LoadTestError(f"--model {model}: not served at {base_url}; it serves {served}")


def _count(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None
