"""Hides secrets in texts: the API key, and the value of every header that the user gave.

A server repeats what it refuses: whole, as part of a URL, in base64, or cut. So any six consecutive
characters of a form in which a secret can be written are hidden, wherever they stand and in capital
or small letters, and the shorter ends that are left in front of an ellipsis and behind it. A secret
below six characters is hidden where it stands as a word.
"""

import base64
import binascii
import html
import json
import re
import string
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, quote_plus

from servetwin.loadtest.credentials import extra_headers, secret_values

HIDDEN = "***"
# Consecutive characters of a secret that are hidden; shorter parts are in too many other words.
PART = 6
# Characters that are hidden beside an ellipsis.
_END = 3
_ELLIPSIS = r"\*{2,}|\.{2,}|…"
# The ends of secrets below this length are not hidden: they may be words.
_ENDS_OF = 10
# Characters beyond a limit that are read, so that a secret across it is seen whole.
_AHEAD = 2_000
_SCHEMES = ("bearer", "basic", "token", "digest", "apikey", "negotiate")
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def shown_headers() -> dict[str, str]:
    """Return the headers of the user with hidden values, so that they can be stored."""
    return dict.fromkeys(extra_headers(), HIDDEN)


def redact(text: str, more: Iterable[str] = ()) -> str:
    """Return a text on one line, with every secret in it hidden, also those in ``more``.

    Of a server's text nothing but printable characters is left: others command a terminal.
    """
    line = " ".join(hide_secrets(text, more=more).split())
    return line if line.isprintable() else "".join(c if c.isprintable() else "?" for c in line)


def hide_secrets(text: str, most: int | None = None, more: Iterable[str] = ()) -> str:
    """Return a text with every secret in it hidden; at most the first ``most`` characters of it.

    Only then is it cut, so that no part of a secret is left at its end. ``more`` are secrets beside
    the key and the headers of all requests, such as those of one request.
    """
    if most is not None:
        text = text[: most + _AHEAD]
    if not text.isascii():
        text = text.encode(errors="replace").decode()  # JSON may have halves of characters.
    return _hiding((*secret_values(), *more)).hide(text)[:most]


class _Hiding:
    """Finds secrets in a text; the cost is linear in the text, however many secrets there are."""

    def __init__(self, values: tuple[str, ...]) -> None:
        secrets = [secret for value in values for secret in _secrets_of(value)]
        forms = {form.translate(_LOWER) for secret in secrets for form in _forms(secret)}
        self._parts = {form[at : at + PART] for form in forms for at in range(len(form) - PART + 1)}
        ends = [secret for secret in secrets if len(secret) >= _ENDS_OF]
        lengths = range(_END, PART)
        self._patterns = [
            *_any_of([form for form in forms if len(form) < PART], r"(?<!\w)", r"(?!\w)"),
            *_any_of([end[:length] for end in ends for length in lengths], "", f"(?={_ELLIPSIS})"),
            *_any_of([end[-length:] for end in ends for length in lengths], f"({_ELLIPSIS})", ""),
        ]

    def hide(self, text: str) -> str:
        """Return the text without the secrets."""
        text = self._without_parts(text) if self._parts else text
        for pattern in self._patterns:
            text = pattern.sub(rf"\g<before>{HIDDEN}", text)
        return text

    def _without_parts(self, text: str) -> str:
        """Replace each run of characters that are covered by parts of secrets."""
        lower, pieces, end = text.translate(_LOWER), list[str](), 0
        for at in range(len(text) - PART + 1):
            if lower[at : at + PART] in self._parts:
                if at > end or not pieces:
                    pieces += [text[end:at], HIDDEN]
                end = at + PART
        return "".join([*pieces, text[end:]])


@lru_cache(maxsize=4)
def _hiding(values: tuple[str, ...]) -> _Hiding:
    return _Hiding(values)


def _any_of(words: list[str], before: str, after: str) -> Iterator[re.Pattern[str]]:
    """Yield a pattern of any of these words, the longest first; none without words."""
    ordered = sorted(filter(None, words), key=len, reverse=True)
    if ordered:
        choice = "|".join(map(re.escape, ordered))
        yield re.compile(f"(?P<before>{before})(?:{choice}){after}", re.IGNORECASE)


def _secrets_of(value: str) -> Iterator[str]:
    """Yield what is secret in the value of a header: not the word that names the scheme."""
    scheme, _, rest = value.partition(" ")
    named = rest.strip() if scheme.lower() in _SCHEMES else ""
    yield named or value
    if named and scheme.lower() == "basic":
        try:
            login = base64.b64decode(named, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return
        yield from filter(None, [login, login.partition(":")[2]])


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is, in JSON, in HTML, in a URL, and in base64."""
    yield secret
    yield " ".join(secret.split())
    yield json.dumps(secret)[1:-1]
    yield html.escape(secret)
    yield quote(secret)
    yield quote(secret, safe="")
    yield quote_plus(secret)
    for before in range(3):
        yield from _in_base64(secret.encode(errors="replace"), before)


def _in_base64(secret: bytes, before: int) -> Iterator[str]:
    """Yield the characters of base64 that depend on a secret alone, after ``before`` bytes."""
    start, end = (8 * before + 5) // 6, 8 * (before + len(secret)) // 6
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        written = encode(bytes(before) + secret).decode()
        if end - start >= PART:
            yield written[start:end]
        if not before:
            yield written.rstrip("=")
