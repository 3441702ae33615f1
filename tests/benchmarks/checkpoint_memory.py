"""What loading a checkpoint takes: ``python -m tests.benchmarks.checkpoint_memory [PRESET]``.

Writes a checkpoint of a preset's shape in bfloat16, loads it in processes of their own, and says
how long that took and how much memory was taken at most: of one's own, and with the pages of the
mapped files, which the system takes back when it needs them.
"""

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

MIB = 1 << 20


def write(folder: Path, preset: str) -> None:
    """Write ``config.json`` and shards, tensor by tensor as transformers would."""
    import json

    import torch
    from safetensors.torch import save_file

    from servetwin.engine.models.model_config import model_preset
    from servetwin.engine.models.tensor_layout import all_parts

    model = model_preset(preset)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": model.hidden_size,
        "intermediate_size": model.ffn_size,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab_size,
        "rms_norm_eps": model.norm_eps,
        "rope_theta": model.rope_theta,
        "max_position_embeddings": model.max_model_len,
        "tie_word_embeddings": model.tie_embeddings,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shards: dict[str, str] = {}
    parts = [*all_parts(model)]
    for start in range(0, len(parts), 64):
        of_shard = parts[start : start + 64]
        name = f"model-{start // 64:05}.safetensors"
        tensors = {p.name: torch.randn(p.shape, dtype=torch.bfloat16) * 0.06 for p in of_shard}
        save_file(tensors, folder / name, {"format": "pt"})
        shards |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


def load(folder: str, dtype: str, prepack: bool) -> None:
    """Load in this process, and say what it took."""
    import torch

    from servetwin.engine.checkpoint.find_model import find_model
    from servetwin.engine.models.computation import Computation
    from servetwin.engine.models.linear import Products
    from servetwin.engine.models.model import Decoder
    from servetwin.engine.models.tensor_layout import parameters

    torch.set_num_threads(1)
    found = find_model(folder)
    read = found.load_weights(found.config)
    assert read is not None
    before, peak, done = memory()["RssAnon"], [0, 0], Event()

    def watch() -> None:
        while not done.wait(0.002):
            now = memory()
            peak[:] = max(peak[0], now["RssAnon"]), max(peak[1], now["VmRSS"])

    watcher = Thread(target=watch)
    watcher.start()
    begin_s = time.perf_counter()
    weights = read(getattr(torch, dtype), torch.device("cpu"))
    decoder = Decoder(found.config, weights, Products(Computation(prepack=prepack)))
    taken_s = time.perf_counter() - begin_s
    done.set()
    watcher.join()
    size = parameters(found.config) * getattr(torch, dtype).itemsize
    kind = "prepacked" if prepack else "plain"
    own, all_ = ((value - before) / size for value in peak)
    sys.stdout.write(
        f"{dtype:9} {kind:10} {size / MIB:8.0f} MiB of weights  {taken_s:5.1f} s  "
        f"at most {own:.2f} x in memory of its own, {all_:.2f} x with mapped files "
        f"({decoder.linear_backend})\n"
    )


def memory() -> dict[str, int]:
    """Bytes of this process by name."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {name: int(found[name].split()[0]) * 1024 for name in ("RssAnon", "VmRSS")}


def main() -> None:
    if len(sys.argv) > 2:
        load(sys.argv[1], sys.argv[2], sys.argv[3] == "prepack")
        return
    preset = sys.argv[1] if len(sys.argv) > 1 else "llama-0.6b"
    with TemporaryDirectory() as folder:
        write(Path(folder), preset)
        for dtype in ("bfloat16", "float32"):
            for kind in ("plain", "prepack"):
                module = [sys.executable, "-m", "tests.benchmarks.checkpoint_memory"]
                subprocess.run([*module, folder, dtype, kind], check=True)


if __name__ == "__main__":
    main()
