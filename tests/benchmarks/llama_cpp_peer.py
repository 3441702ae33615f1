"""llama.cpp on a Llama of a given shape, in float32 with one thread.

``python -m tests.benchmarks.llama_cpp_peer SHAPE PROMPT_TOKENS``, run by an interpreter that has
llama-cpp-python and gguf. SHAPE is JSON of the engine's ``ModelConfig``. Each line on stdin is
"sequences new_tokens"; the answer is the seconds that the answers took.
"""

import ctypes
import json
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def write_gguf(path: Path, shape: dict[str, Any]) -> None:
    """Write seeded random weights of the shape, without a tokenizer."""
    gguf: Any = import_module("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(shape["hidden_size"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["ffn_size"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_rope_dimension_count(shape["head_dim"])
    writer.add_layer_norm_rms_eps(shape["norm_eps"])
    writer.add_rope_freq_base(shape["rope_theta"])
    writer.add_vocab_size(shape["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    rng = np.random.default_rng(0)
    for name, size in tensors(shape).items():
        scale = 0.02 if len(size) > 1 else 1.0
        writer.add_tensor(name, (rng.standard_normal(size) * scale).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(shape: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of all tensors, by llama.cpp's names; a tied head is the embedding."""
    hidden, ffn = shape["hidden_size"], shape["ffn_size"]
    queries, keys = (shape[heads] * shape["head_dim"] for heads in ("heads", "kv_heads"))
    sizes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (shape["vocab_size"], hidden), "output_norm.weight": (hidden,)
    }  # fmt: skip
    for layer in range(shape["layers"]):
        of_layer: dict[str, tuple[int, ...]] = {
            "attn_norm": (hidden,), "ffn_norm": (hidden,),
            "attn_q": (queries, hidden), "attn_k": (keys, hidden), "attn_v": (keys, hidden),
            "attn_output": (hidden, queries),
            "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn),
        }  # fmt: skip
        sizes |= {f"blk.{layer}.{name}.weight": size for name, size in of_layer.items()}
    return sizes


class LlamaCpp:
    """A loaded model whose sequences decode together, greedily."""

    def __init__(self, path: Path, vocab_size: int, prompt_tokens: int) -> None:
        self._lib: Any = import_module("llama_cpp")
        self._vocab_size, self._prompt_tokens = vocab_size, prompt_tokens
        self._quiet = self._lib.llama_log_callback(lambda level, text, data: None)
        self._lib.llama_log_set(self._quiet, None)
        self._lib.llama_backend_init()
        model = self._lib.llama_load_model_from_file(
            str(path).encode(), self._lib.llama_model_default_params()
        )
        params = self._lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 8192, 2048, 2048, 16
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = 0  # float32
        params.kv_unified = True
        self._context = self._lib.llama_new_context_with_model(model, params)
        self._batch = self._lib.llama_batch_init(2048, 0, 1)

    def generate(self, sequences: int, new_tokens: int) -> float:
        """Return the seconds that so many answers take."""
        rng = np.random.default_rng(sequences)
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)
        began_s = time.perf_counter()
        prompts = rng.integers(300, 30_000, (sequences, self._prompt_tokens))
        places = np.arange(self._prompt_tokens)
        rows = [(s, int(prompts[s, p]), int(p)) for s in range(sequences) for p in places]
        last = [(s + 1) * self._prompt_tokens - 1 for s in range(sequences)]
        self._decode(rows, set(last))
        for step in range(new_tokens - 1):
            tokens = [self._best(row) for row in last]
            at = self._prompt_tokens + step
            self._decode([(s, token, at) for s, token in enumerate(tokens)], set(range(sequences)))
            last = list(range(sequences))
        _ = [self._best(row) for row in last]
        return time.perf_counter() - began_s

    def _decode(self, rows: list[tuple[int, int, int]], sampled: set[int]) -> None:
        batch = self._batch
        batch.n_tokens = len(rows)
        for row, (sequence, token, position) in enumerate(rows):
            batch.token[row], batch.pos[row] = token, position
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
            batch.logits[row] = row in sampled
        if code := self._lib.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode returned {code}")

    def _best(self, row: int) -> int:
        logits = self._lib.llama_get_logits_ith(self._context, row)
        values = np.ctypeslib.as_array(
            ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (self._vocab_size,)
        )
        return int(values.argmax())


def main() -> None:
    """Answer each line of stdin."""
    shape, prompt_tokens = json.loads(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_gguf(path, shape)
        model = LlamaCpp(path, shape["vocab_size"], prompt_tokens)
        for line in sys.stdin:
            sequences, new_tokens = map(int, line.split())
            sys.stdout.write(f"{model.generate(sequences, new_tokens)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
