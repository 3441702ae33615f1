"""What to try when a load test has failed as a whole: from the servers' words to one advice."""

import re
from collections.abc import Mapping

_HINTS = (
    # kind of failure, words in its first message, what to try
    ("no_token", r"begins '\s*<", "a web page came instead of a stream; check the URL and proxies"),
    ("no_token", "", "the stream has no text that is known; try another --dialect or --api"),
    ("http_4xx", r"min_tokens|ignore_eos|unrecogni|extra", "try --no-force-length"),
    ("http_4xx", r"HTTP 40[13]", "set the API key: OPENAI_API_KEY, --api-key-env or --header"),
    ("http_4xx", r"HTTP 40[45]", "nothing is served at that path; try another --api or --dialect"),
    ("http_4xx", r"context|too long|max_total|max_model", "try --on-too-long clip"),
    ("http_3xx", "", "give the URL that it redirects to"),
    ("timeout", "", "no answer came in time; is the server overloaded, or --timeout too short?"),
    ("connect", "", "is the server still running?"),
)


def hint(first_messages: Mapping[str, str]) -> str | None:
    """What to try, by the first message of each kind of failure; None where nothing is known."""
    for kind, words, advice in _HINTS:
        message = first_messages.get(kind)
        if message is not None and re.search(words, message, re.IGNORECASE):
            return advice
    return None
