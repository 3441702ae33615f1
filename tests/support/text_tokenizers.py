"""Small tokenizers as checkpoints have them, trained on a few lines."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

LINES = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë.",
    "user assistant system tool 你好 世界 0 1 2 3 4 5 6 7 8 9",
] * 4
BOS, EOS, END_OF_TURN = "<|begin|>", "<|end|>", "<|turn|>"
SPECIAL = [BOS, EOS, END_OF_TURN]


def byte_level(vocab_size: int = 400) -> Any:
    """Byte-level BPE, as of Llama 3, Qwen and GPT; a prompt begins with the first special token."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=SPECIAL, initial_alphabet=alphabet
    )
    return _trained(made, trainer)


def sentence_pieces(vocab_size: int = 500) -> Any:
    """BPE over words that begin with a mark for the space, as of Llama 2 and Mistral.

    A character that was not seen falls back to its bytes.
    """
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    of_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<unk>", *SPECIAL, *of_bytes]
    )
    return _trained(made, trainer, of_bytes)


def _trained(made: Any, trainer: Any, of_bytes: list[str] | None = None) -> Any:
    made.train_from_iterator(LINES, trainer)
    if of_bytes:  # pieces of the model, as in real files, and no special tokens
        made = _without_added(made, of_bytes)
    made.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, made.token_to_id(BOS))]
    )
    return made


def _without_added(made: Any, names: list[str]) -> Any:
    import json

    described = json.loads(made.to_str())
    described["added_tokens"] = [
        token for token in described["added_tokens"] if token["content"] not in names
    ]
    return Tokenizer.from_str(json.dumps(described))


def write_tokenizer(folder: Path, made: Any) -> None:
    """Write ``tokenizer.json``."""
    made.save(str(folder / "tokenizer.json"))
