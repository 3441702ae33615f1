"""Reads what a server says about itself: its list of models, and pages that identify it."""

from collections.abc import Mapping
from typing import Any

import httpx

from servetwin.loadtest.credentials import key_variable
from servetwin.loadtest.redaction import hide_secrets, redact
from servetwin.workloads.errors import LoadTestError, Unreachable
from servetwin.workloads.program.package import shipped_json

TRY = "give the URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"
MODELS = "/v1/models"
_PAGE_TIMEOUT_S = 3.0
_URL_LENGTH = 300


class ServerProbe:
    """The pages of a server, each fetched once.

    ``models`` are the cards of ``/v1/models`` that have an ``id``; where there are none,
    ``complaint`` says why. Raises ``Unreachable`` where nothing answers, ``LoadTestError`` where
    the key is not accepted.
    """

    def __init__(self, root: str, client: httpx.Client) -> None:
        self._root = root
        self._client = client
        self._pages: dict[str, Mapping[str, Any]] = {}
        self.complaint: LoadTestError | None = None
        self.headers: Mapping[str, str] = {}
        self.models = self._models()
        client.timeout = httpx.Timeout(_PAGE_TIMEOUT_S)

    @property
    def owner(self) -> str:
        """The ``owned_by`` of the first model."""
        return str(self.models[0].get("owned_by", "")) if self.models else ""

    def page(self, path: str) -> Mapping[str, Any]:
        """Return the JSON object at a path; an empty one where there is none."""
        if path not in self._pages:
            self._pages[path] = self._page(path)
        return self._pages[path]

    def _page(self, path: str) -> Mapping[str, Any]:
        try:
            answer = self._client.get(f"{self._root}{path}")
            return fields_of(answer.json()) if answer.status_code == 200 else {}
        except (httpx.HTTPError, ValueError):
            return {}

    def _models(self) -> list[Mapping[str, Any]]:
        call = f"GET {self._root}{MODELS}"
        try:
            answer = self._client.get(f"{self._root}{MODELS}")
        except httpx.HTTPError as error:
            raise _unreachable(call, error, self._client.timeout.read) from error
        self.headers = answer.headers
        if answer.status_code in (401, 403):
            hint = f"set {key_variable()} to a key that it accepts"
            raise LoadTestError(f"{call}: answered {answer.status_code}; {hint}")
        cards, problem = _cards(answer)
        if problem:
            self.complaint = LoadTestError(f"{call}: {problem}{self._elsewhere(answer)}")
        return cards

    def _elsewhere(self, answer: httpx.Response) -> str:
        """Return a hint where the list of models is at the root, not below the path of the URL."""
        origin = str(httpx.URL(self._root).copy_with(path="/")).rstrip("/")
        if answer.status_code != 404 or origin == self._root:
            return ""
        try:
            cards, _ = _cards(self._client.get(f"{origin}{MODELS}"))
        except httpx.HTTPError:
            return ""
        return f"; there is one at {origin}/v1" if cards else ""


def _cards(answer: httpx.Response) -> tuple[list[Mapping[str, Any]], str | None]:
    """Return the cards, and the reason where there are none."""
    if target := redirect_target(answer):
        return [], f"answered {answer.status_code} and redirects to {target}; give the URL there"
    if answer.status_code != 200:
        more = "; without a list: --dialect openai --model NAME" * (answer.status_code == 404)
        return [], f"answered {answer.status_code}; {TRY}{more}"
    if "text/html" in answer.headers.get("content-type", ""):
        return [], f"answered with a web page, not with JSON; {TRY}"
    try:
        models = answer.json()["data"]
    except (ValueError, KeyError, TypeError):
        models = None
    if not isinstance(models, list):
        return [], f"the answer is no list of models; {TRY}"
    cards = [m for m in models if isinstance(m, Mapping) and isinstance(m.get("id"), str)]
    return cards, None if cards else "no model is served there"


# What to do by words of an error; the first that fits counts.
_REASONS: dict[str, str] = shipped_json("loadtest/dialects/servers.json")["unreachable"]


def _unreachable(call: str, error: httpx.HTTPError, timeout_s: float | None) -> Unreachable:
    if isinstance(error, httpx.ReadTimeout):
        hint = "it takes connections and stays silent: is its model still loading?"
        return Unreachable(f"{call}: no answer within {timeout_s:g} s; {hint}")
    reason = redact(str(error)) or type(error).__name__
    known = (hint for words, hint in _REASONS.items() if words in reason)
    hint = next(known, f"is the server running? {TRY}")
    return Unreachable(f"{call}: {reason}; {hint}")


def redirect_target(response: httpx.Response) -> str:
    """Return the URL to which an answer redirects; empty where it does not.

    Query and password are left out: they may be secrets of the server.
    """
    location = response.headers.get("location")
    if not location or not 300 <= response.status_code < 400:
        return ""
    try:
        target = response.request.url.join(location)
        shown = str(target.copy_with(query=None, fragment=None, userinfo=b""))
    except (httpx.InvalidURL, ValueError):
        shown = location.partition("?")[0]
    return hide_secrets(shown, _URL_LENGTH)


def fields_of(value: object) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}
