"""A tokenizer of words and signs in a file: each is one token, and one begins every text."""

from pathlib import Path

import pytest

from servetwin.workloads.generators.prompts import WORDS
from tests.support.prompt_files import ANSWERS, QUESTIONS


def small_tokenizer(folder: Path) -> Path:
    """``tokenizer.json`` in the folder; skips the test where the package is missing."""
    tokenizers = pytest.importorskip("tokenizers")
    texts = [*QUESTIONS, *ANSWERS, "Be brief.", "assistant user system :"]
    before = tokenizers.pre_tokenizers.Whitespace()
    pieces = [piece for text in texts for piece, _ in before.pre_tokenize_str(text)]
    names = dict.fromkeys(["<s>", "<unk>", *WORDS, *pieces])
    vocabulary = {name: number for number, name in enumerate(names)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = before
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    path = folder / "tokenizer.json"
    made.save(str(path))
    return path
