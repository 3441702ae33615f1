"""Exact lengths of real prompts, by a tokenizer in a local file.

A text counts as servers count it, with the special tokens that the tokenizer adds. Of a chat the
contents count, without the template, which only the server knows; of an answer the text alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from servetwin.workloads.errors import TraceError
from servetwin.workloads.readers.prompt_fields import texts_of
from servetwin.workloads.readers.prompt_records import ESTIMATED
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

FILE = "tokenizer.json"
# Texts that are encoded together, on all cores.
_AT_ONCE = 256


class LocalTokenizer:
    """The tokenizer of a ``tokenizer.json``, or of the folder that has one.

    Raises ``TraceError`` where the package ``tokenizers`` or the file is missing, or is no
    tokenizer.
    """

    def __init__(self, path: Path) -> None:
        file = path / FILE if path.is_dir() else path
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise TraceError(
                "--tokenizer: wants the package tokenizers: pip install 'servetwin[tokenizers]'"
            ) from None
        if not file.is_file():
            raise TraceError(f"--tokenizer {path}: no such file; give a {FILE} or its folder")
        self.name = str(path)
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(file))
        except Exception as error:  # the package raises plain ones
            reason = " ".join(str(error).split())[:200]
            raise TraceError(f"--tokenizer {path}: not a tokenizer ({reason})") from None

    def lengths(self, texts: Sequence[str], *, special: bool) -> list[int]:
        """Return the tokens of each text, with or without the special ones that are added."""
        lengths: list[int] = []
        for at in range(0, len(texts), _AT_ONCE):
            part = list(texts[at : at + _AT_ONCE])
            made = self._tokenizer.encode_batch(part, add_special_tokens=special)
            lengths += [len(encoding) for encoding in made]
        return lengths

    def counted(self, trace: Trace) -> Trace:
        """Return the trace with the exact lengths of real prompts and of answers in the source.

        Requests without a real prompt stay as they are.
        """
        texts = [r.prompt for r in trace if isinstance(r.prompt, str)]
        chats = [[*texts_of(r.prompt)] for r in trace if isinstance(r.prompt, tuple)]
        answers = [r.answer for r in trace if r.prompt is not None and r.answer is not None]
        of_text = iter(self.lengths(texts, special=True))
        of_chat_text = iter(self.lengths([*chain.from_iterable(chats)], special=False))
        of_chat = iter([sum(islice(of_chat_text, len(chat_texts))) for chat_texts in chats])
        of_answer = iter(self.lengths(answers, special=False))

        def counted(request: Request) -> Request:
            prompt, output_tokens = request.prompt, request.output_tokens
            if prompt is None:
                return request
            prompt_tokens = next(of_text if isinstance(prompt, str) else of_chat)
            if request.answer is not None:
                output_tokens = next(of_answer)
            return replace(
                request, prompt_tokens=max(1, prompt_tokens), output_tokens=max(1, output_tokens)
            )

        notes = tuple(note for note in trace.notes if note != ESTIMATED)
        requests = [counted(request) for request in trace]
        return replace(trace, notes=notes).replaced(requests, f"lengths counted by {self.name}")
