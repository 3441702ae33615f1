"""The JSON of the API's answers. Chunks are put together from prepared strings: one per token."""

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from servetwin.engine.core.messages import FinishReason, TokenEvent
from servetwin.engine.sampling.token_state import TokenLogprobs
from servetwin.engine.text.text_stream import TokenTexts

# Stands for minus infinity, which JSON has not (as in vLLM).
LOWEST = -9999.0

# A token and its logprobs; None for the first token of a prompt, before which there is nothing.
Token = tuple[int, TokenLogprobs | None]
DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one of the two routes words its answers."""

    id_prefix: str
    answer_object: str
    chunk_object: str
    before_text: str
    after_text: str


COMPLETION = Dialect("cmpl", "text_completion", "text_completion", '"text":', "")
CHAT = Dialect("chatcmpl", "chat.completion", "chat.completion.chunk", '"delta":{"content":', "}")


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt that its answers repeat."""

    text: str
    token_ids: list[int]
    alone: bool
    """Whether nothing comes after it (``max_tokens`` 0): the one token that is sampled is not
    shown."""


class Answer:
    """The answer to one prompt of a request, whole or in chunks; it may begin with the prompt."""

    def __init__(
        self,
        dialect: Dialect,
        request_id: str,
        model: str,
        token_ids: bool,
        index: int = 0,
        texts: TokenTexts | None = None,
        echo: Echo | None = None,
    ) -> None:
        """``texts`` are those of the tokens, for logprobs; None: these are not wanted."""
        self._dialect = dialect
        self._texts = texts
        self._echo = echo
        # Whether a stream has not shown the prompt yet.
        self._echo_left = echo is not None
        # Length of the text whose logprobs have been sent.
        self._offset = 0
        self._with_token_ids = token_ids
        self._head = {"id": request_id, "created": int(time.time()), "model": model}
        self._chunk_head = f"data: {_dumps({'object': dialect.chunk_object, **self._head})[:-1]},"
        self._index = index
        self._before_text = f'{self._chunk_head}"choices":[{{"index":{index},{dialect.before_text}'
        self._after_text = f'{dialect.after_text},"logprobs":'

    def opening(self) -> str:
        """Return the first chunk of a stream, before any token."""
        if self._dialect is not CHAT:
            return ""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": None}
        return f'{self._chunk_head}"choices":[{_dumps(choice)}]}}\n\n'

    def chunk(self, event: TokenEvent) -> str:
        """Return the chunk of one token; before the first one, that of an echoed prompt."""
        prompt, echo = "", self._echo
        if echo and self._echo_left:
            self._echo_left = False
            reason: FinishReason | None = "length" if echo.alone else None
            prompt = self._text_chunk(echo.text, self._prompt(event), reason)
            self._offset = len(echo.text)
            if echo.alone:
                return prompt
        ids = f',"token_ids":[{event.token_id}]' if self._with_token_ids else ""
        tokens = ((event.token_id, event.logprobs),)
        return prompt + self._text_chunk(event.text, tokens, event.finish_reason, ids)

    def _text_chunk(
        self, text: str, tokens: Sequence[Token], reason: FinishReason | None, ids: str = ""
    ) -> str:
        """Return the chunk of a text, with the logprobs of ``tokens`` where they are wanted."""
        logprobs = "null" if self._texts is None else _dumps(self._logprobs(tokens, self._texts))
        ends = f'"{reason}"' if reason else "null"
        after = f'{self._after_text}{logprobs},"finish_reason":{ends}{ids}'
        return f"{self._before_text}{json.dumps(text)}{after}}}]}}\n\n"

    def usage_chunk(self, usage: dict[str, Any]) -> str:
        """Return the chunk with the token counts, after the last token."""
        return f'{self._chunk_head}"choices":[],"usage":{_dumps(usage)}}}\n\n'

    def choice(self, events: Sequence[TokenEvent]) -> dict[str, Any]:
        """Return the output of an answer that is not streamed."""
        echo, shown = self._echo, self._shown(events)
        text = (echo.text if echo else "") + "".join(event.text for event in shown)
        tokens = [*self._prompt(events[0]), *((one.token_id, one.logprobs) for one in shown)]
        choice: dict[str, Any] = {"index": self._index}
        if self._dialect is CHAT:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        choice["logprobs"] = None if self._texts is None else self._logprobs(tokens, self._texts)
        choice["finish_reason"] = events[-1].finish_reason if shown else "length"
        if self._with_token_ids:
            choice["token_ids"] = [event.token_id for event in shown]
        return choice

    def output_tokens(self, events: Sequence[TokenEvent]) -> int:
        """Return how many tokens the output has."""
        return len(self._shown(events))

    def _shown(self, events: Sequence[TokenEvent]) -> Sequence[TokenEvent]:
        return () if self._echo and self._echo.alone else events

    def _prompt(self, first: TokenEvent) -> list[Token]:
        """Return the tokens of an echoed prompt, where their logprobs are wanted."""
        if self._echo is None or not first.prompt_logprobs:
            return []
        return list(zip(self._echo.token_ids, first.prompt_logprobs, strict=True))

    def whole(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        """Return the body of an answer that is not streamed: the outputs of all its prompts."""
        head = {"object": self._dialect.answer_object, **self._head}
        return head | {"choices": choices, "usage": usage}

    def _logprobs(self, tokens: Sequence[Token], texts: TokenTexts) -> dict[str, Any]:
        if self._dialect is CHAT:
            return chat_logprobs(tokens, texts)
        offset = self._offset
        self._offset += sum(len(texts.of(token_id)) for token_id, _ in tokens)
        return completion_logprobs(tokens, texts, offset)


def usage(outputs: Iterable[tuple[int, int, int]]) -> dict[str, Any]:
    """Return OpenAI's usage object for (prompt tokens, output tokens, cached tokens) of each."""
    prompt_tokens, completion_tokens, cached_tokens = map(sum, zip(*outputs, strict=True))
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def error_chunk(body: dict[str, object]) -> str:
    """Return the chunk that reports an error inside a stream."""
    return f"data: {_dumps(body)}\n\n"


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def completion_logprobs(
    tokens: Sequence[Token], texts: TokenTexts, offset: int = 0
) -> dict[str, Any]:
    """Return the ``logprobs`` of a completion; ``offset`` is the length of the text before it.

    The likeliest tokens come with the chosen one where it is not among them. Of tokens with equal
    texts, only the likeliest appears.
    """
    offsets = []
    for token_id, _ in tokens:
        offsets.append(offset)
        offset += len(texts.of(token_id))
    return {
        "tokens": [texts.of(token_id) for token_id, _ in tokens],
        "token_logprobs": [logprobs and _number(logprobs.chosen) for _, logprobs in tokens],
        "top_logprobs": [
            logprobs and _by_text(token_id, logprobs, texts) for token_id, logprobs in tokens
        ],
        "text_offset": offsets,
    }


def chat_logprobs(tokens: Iterable[Token], texts: TokenTexts) -> dict[str, Any]:
    """Return the ``logprobs`` of a chat completion."""
    content = [
        _chat_token(token_id, logprobs.chosen, texts)
        | {"top_logprobs": [_chat_token(*one, texts) for one in logprobs.top]}
        for token_id, logprobs in tokens
        if logprobs
    ]
    return {"content": content, "refusal": None}


def _by_text(token_id: int, logprobs: TokenLogprobs, texts: TokenTexts) -> dict[str, float]:
    by_text: dict[str, float] = {}
    for one, logprob in (*logprobs.top, (token_id, logprobs.chosen)):
        by_text.setdefault(texts.of(one), _number(logprob))
    return by_text


def _chat_token(token_id: int, logprob: float, texts: TokenTexts) -> dict[str, Any]:
    text = texts.of(token_id)
    whole = "\N{REPLACEMENT CHARACTER}" not in text
    return {
        "token": text,
        "logprob": _number(logprob),
        "bytes": list(text.encode()) if whole else None,
    }


def _number(logprob: float) -> float:
    return LOWEST if math.isnan(logprob) else max(logprob, LOWEST)
