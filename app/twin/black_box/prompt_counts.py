"""How many tokens a server makes of our words, where its streams do not say."""

import json

import httpx

from loadtest.dialects.native_event import count, fields_of
from loadtest.endpoint import Endpoint, client_settings
from workloads.request import Request

PROBED_WORDS = (4, 12, 36, 108)
TIMEOUT_S = 30.0


def count_prompts(endpoint: Endpoint) -> list[tuple[int, float]]:
    """(words, prompt tokens) by the usage of whole answers of one token, of OpenAI's API.

    Empty where these have none either, or another API is asked.
    """
    if endpoint.api == "native":
        return []
    settings = client_settings(endpoint.base_url)
    with httpx.Client(timeout=TIMEOUT_S, **settings) as client:
        counted = {words: _counted(client, endpoint, words) for words in PROBED_WORDS}
    return [(words, float(tokens)) for words, tokens in counted.items() if tokens]


def _counted(client: httpx.Client, endpoint: Endpoint, words: int) -> int | None:
    body = json.loads(endpoint.body(Request(f"words-{words}", 0.0, words, 1)))
    whole = {**body, "stream": False}
    whole.pop("stream_options", None)
    try:
        answer = client.post(endpoint.url, json=whole)
        return count(fields_of(fields_of(answer.json()).get("usage")).get("prompt_tokens"))
    except (httpx.HTTPError, ValueError):
        return None
