"""Answers to completions that begin with their prompt (``echo``)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from servetwin.engine.core.messages import FinishReason, TokenEvent
from servetwin.engine.http.answers import Answer
from servetwin.engine.http.logprobs import Token


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt that its answers repeat."""

    text: str
    token_ids: list[int]
    alone: bool
    """Whether nothing comes after it (``max_tokens`` 0): the one token that is sampled is not
    shown."""


class EchoedAnswer(Answer):
    """The prompt, with the logprobs of its tokens where they are wanted, then the output."""

    def __init__(self, echo: Echo, *rest: Any, **options: Any) -> None:
        """Take the arguments of ``Answer`` behind the echo."""
        super().__init__(*rest, **options)
        self._echo = echo
        self._echoed = False

    def chunk(self, event: TokenEvent) -> str:
        """Return the chunk of one token; before the first one, that of the prompt."""
        if self._echoed:
            return super().chunk(event)
        self._echoed = True
        echo = self._echo
        reason: FinishReason | None = "length" if echo.alone else None
        prompt = self.text_chunk(echo.text, self._prompt(event), reason)
        self.offset = len(echo.text)
        return prompt if echo.alone else prompt + super().chunk(event)

    def choice(self, events: Sequence[TokenEvent]) -> dict[str, Any]:
        """Return the prompt and the output of an answer that is not streamed."""
        echo, prompt = self._echo, self._prompt(events[0])
        shown = [] if echo.alone else events
        text = echo.text + "".join(event.text for event in shown)
        tokens = [*prompt, *((event.token_id, event.logprobs) for event in shown)]
        ids = [event.token_id for event in shown]
        reason = "length" if echo.alone else events[-1].finish_reason
        return self.text_choice(text, tokens, reason, ids)

    def output_tokens(self, events: Sequence[TokenEvent]) -> int:
        """Return how many tokens the output has."""
        return 0 if self._echo.alone else len(events)

    def _prompt(self, first: TokenEvent) -> list[Token]:
        said = first.prompt_logprobs
        return list(zip(self._echo.token_ids, said, strict=True)) if said else []
