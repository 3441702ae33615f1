"""A small Llama with seeded random weights, for engines that want it as files.

Run by the engine's own interpreter: ``python -m tests.benchmarks.foreign_model hf FOLDER`` for
transformers, ``... gguf FILE`` for llama.cpp. The tokenizer is trained on lines of every other word
of our prompts: some words are one token, some several, as for any tokenizer. It has no bytes beyond
ASCII, so every token has text of its own. Special tokens, and ids that the tokenizer has no text
for, have no weights: greedy answers never hold one, and so never end early.
"""

import json
import random
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from servetwin.workloads.generators.prompts import WORDS

HIDDEN, LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 512, 8, 8, 4, 1408
CONTEXT = 4096
VOCABULARY = 1024
SPECIAL = ["<s>", "</s>"]
SPREAD = 0.06
"""Standard deviation of the weights; with less, a random model only repeats itself."""


def trained_tokenizer() -> Any:
    """A byte-pair encoding, the same every time."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    rng = random.Random(0)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    lines = [" ".join(rng.choices(WORDS[::2], k=12)) for _ in range(2000)]
    lines.append("abcdefghijklmnopqrstuvwxyz")
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def write_hf(folder: Path, layers: int) -> None:
    """A folder that ``transformers`` loads."""
    import torch

    llama: Any = import_module("transformers")
    tokenizer = trained_tokenizer()
    bos, eos = SPECIAL
    fast = llama.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, model_max_length=CONTEXT
    )
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    torch.manual_seed(0)
    config = llama.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT,
        initializer_range=SPREAD,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
    model = llama.LlamaForCausalLM(config)
    words = model.model.embed_tokens.weight.data
    words[: len(SPECIAL)] = words[tokenizer.get_vocab_size() :] = 0
    model.save_pretrained(folder)
    fast.save_pretrained(folder)


def write_gguf(path: Path, layers: int) -> None:
    """A file that llama.cpp loads."""
    import numpy as np

    rng = np.random.default_rng(0)
    writer: Any = import_module("gguf").GGUFWriter(path, "llama")
    size = _write_vocabulary(writer)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(size)
    for name, shape in _tensors(size, layers).items():
        weights = rng.normal(0, SPREAD, shape) if len(shape) > 1 else np.ones(shape)
        if name == "token_embd":
            weights[: len(SPECIAL)] = 0
        writer.add_tensor(f"{name}.weight", weights.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_vocabulary(writer: Any) -> int:
    model = json.loads(trained_tokenizer().to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    types = import_module("gguf").TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([types.CONTROL if t in SPECIAL else types.NORMAL for t in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    return len(tokens)


def _tensors(vocabulary: int, layers: int) -> dict[str, tuple[int, ...]]:
    """Shapes by name, outputs first."""
    kv = HIDDEN * KV_HEADS // HEADS
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (HIDDEN,),
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (kv, HIDDEN),
        "attn_v": (kv, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (FEED_FORWARD, HIDDEN),
        "ffn_up": (FEED_FORWARD, HIDDEN),
        "ffn_down": (HIDDEN, FEED_FORWARD),
    }
    blocks = {f"blk.{i}.{name}": shape for i in range(layers) for name, shape in layer.items()}
    return {"token_embd": (vocabulary, HIDDEN), **blocks, "output_norm": (HIDDEN,)}


if __name__ == "__main__":
    kind, path, layers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    {"hf": write_hf, "gguf": write_gguf}[kind](path, layers)
