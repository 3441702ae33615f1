"""Models and devices that are wrong: one message, with the file, the field, and its unit."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.catalogue import entry
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hf_config import model_from_hf_config
from servetwin.workloads.errors import ShapeError

SHAPES = Path(entry.__file__).parent
DEVICE = json.loads((SHAPES / "devices" / "h100.json").read_text())
MODEL = json.loads((SHAPES / "models" / "llama-2-7b.json").read_text())
HF = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 500,
}
GONE = object()


def changed(whole: Any, path: str, value: Any) -> Any:
    """A copy of an entry with another value at a dotted path, or without it."""
    copy = json.loads(json.dumps(whole))
    *way, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place = copy
    for part in way:
        place = place[part]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return copy


def complaint(find: Callable[[str], object], path: Path) -> str:
    """What is said of a file, which it begins with."""
    with pytest.raises(ShapeError) as error:
        find(str(path))
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (
            "memory_bytes_per_s",
            -3,
            "field 'memory_bytes_per_s' (bytes per second): -3 is not possible; it must be "
            "greater than 0",
        ),
        ("memory_bytes", GONE, "field 'memory_bytes' (bytes) is missing; it must be given"),
        ("memory_bytes", "80 GB", "'memory_bytes' (bytes): '80 GB' is not possible; it must be a"),
        ("memory_bytes", float("nan"), "it must be a finite number"),
        ("memory_bytes", float("inf"), "it must be a finite number"),
        ("compute_units", 1.5, "field 'compute_units' (SMs, CUs or cores): 1.5 is not possible"),
        ("compute_units", True, "True is not possible; it must be a valid integer"),
        ("link_latency_s", -1, "field 'link_latency_s' (seconds): -1 is not possible"),
        ("peak_flops_per_s", {}, "'peak_flops_per_s' (FLOP per second): it must have at least one"),
        (
            "peak_flops_per_s.bf16",
            0,
            "field 'peak_flops_per_s.bf16' (FLOP per second): 0 is not possible",
        ),
        ("peak_flops_per_s.fp16", 1.0, "'fp16' is not possible; it must be 'fp32', 'bf16'"),
        ("memory_byte", 1, "field 'memory_byte' is not known; did you mean 'memory_bytes'?"),
        ("colour", "red", "field 'colour' is not known; leave it out"),
        ("source", GONE, "field 'source' is missing"),
    ],
)
def test_a_device_with_a_wrong_field(tmp_path: Path, path: str, value: Any, expected: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(changed(DEVICE, path, value)))
    assert expected in complaint(find_hardware, file)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("width", 0, "field 'width' (elements): 0 is not possible; it must be greater than or"),
        ("width", "4096", "'4096' is not possible; it must be a valid integer"),
        ("max_model_len", -1, "field 'max_model_len' (tokens): -1 is not possible"),
        ("layers", [], "field 'layers': it must have at least one entry"),
        ("layers", 32, "field 'layers': 32 is not possible"),
        ("layers.0.count", GONE, "field 'layers[0].count' is missing"),
        ("layers.0.mixer", GONE, "field 'layers[0].mixer' is missing"),
        ("layers.0.mixer.kind", GONE, "field 'layers[0].mixer': its 'kind' is missing"),
        ("layers.0.mixer.kind", "mla", "kind 'mla' is not known; it must be 'attention', 'latent'"),
        ("layers.0.mixer.kind", "latent", "'layers[0].mixer.latent_dim' (elements) is missing"),
        ("layers.0.mixer.kv_heads", 5, "32 heads cannot share 5 kv_heads evenly"),
        ("layers.0.mixer.window_tokens", 0, "'layers[0].mixer.window_tokens' (tokens): 0 is not"),
        ("layers.0.mixer.head_dims", 1, "'layers[0].mixer.head_dims' is not known; did you mean"),
        ("layers.0.ffn.width", -1, "field 'layers[0].ffn.width' (elements): -1 is not possible"),
        (
            "layers.0.ffn",
            {"kind": "experts", "experts": 2, "top_k": 3, "width": 8},
            "field 'layers[0].ffn': top_k 3 of 2 experts is impossible",
        ),
    ],
)
def test_a_model_with_a_wrong_field(tmp_path: Path, path: str, value: Any, expected: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(changed(MODEL, path, value)))
    assert expected in complaint(find_model, file)


@pytest.mark.parametrize("find", [find_model, find_hardware])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "line 1: not JSON"),
        (b'{\n"width": 1,\n]', "line 3: not JSON"),
        (b"[1, 2]", "a JSON object {...} is needed, not [1, 2]"),
        (b"null", "a JSON object {...} is needed"),
        (b"\x89PNG\r\n\x1a\n\xff\x00", "not text"),
        (b"[" * 100_000, "not JSON that can be read"),
        (b'{"width": ' + b"9" * 5000 + b"}", "a number of 5000 digits"),
        (b'{"width": "\\ud800"}', "invalid JSON"),
        (b"{}", "field 'name' is missing"),
    ],
    ids=["empty", "broken", "list", "null", "binary", "deep", "huge", "surrogate", "nothing"],
)
def test_a_file_that_is_no_entry(
    tmp_path: Path, find: Callable[[str], object], content: bytes, expected: str
) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(content)
    assert expected in complaint(find, file)


@pytest.mark.parametrize("find", [find_model, find_hardware])
def test_paths_that_lead_to_no_file(tmp_path: Path, find: Callable[[str], object]) -> None:
    assert "a directory" in complaint(find, tmp_path)
    assert "No such file" in complaint(find, tmp_path / "none.json")
    assert "embedded null byte" in complaint(find, tmp_path / "\0.json")


@pytest.mark.parametrize(
    ("find", "name", "expected"),
    [
        (find_model, "llama2-7b", "no model 'llama2-7b'; did you mean 'llama-2-7b'?"),
        (find_model, "Mixtral-8x7", "did you mean 'mixtral-8x7b'?"),
        (find_model, "zzz", "'servetwin list models' has them"),
        (find_hardware, "A100-80G", "did you mean 'a100-80gb'?"),
        (find_hardware, "", "no device ''; 'servetwin list devices' has them"),
    ],
)
def test_unknown_names_give_the_nearest(
    find: Callable[[str], object], name: str, expected: str
) -> None:
    with pytest.raises(ShapeError) as error:
        find(name)
    assert expected in str(error.value)
    assert "(or give the path of a .json file)" in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (
            "hidden_size",
            GONE,
            "hidden_size (or n_embd, d_model, n_embed) is missing; it must be a whole number "
            "from 1 on",
        ),
        ("vocab_size", GONE, "vocab_size is missing"),
        ("intermediate_size", GONE, "intermediate_size (or"),
        ("num_hidden_layers", 10**9, "num_hidden_layers must be a whole number from 1 to 10000"),
        ("num_hidden_layers", "2", "must be a whole number from 1 to 10000 (got '2')"),
        ("num_attention_heads", 5, "num_attention_heads must be a divisor of "),
        ("num_attention_heads", True, "(got True)"),
        ("num_key_value_heads", 3, "num_key_value_heads must be a divisor of "),
        ("tie_word_embeddings", "no", "must be true or false (got 'no')"),
        (
            "layer_types",
            ["full_attention"],
            "must be a list of 2 of full_attention, sliding_attention",
        ),
        ("layer_types", ["linear_attention"] * 2, "linear_key_head_dim is missing"),
        ("layer_types", [["x"], 3], "must be a list of str"),
        ("model_type", 7, "model_type must be a string (got 7)"),
        ("is_encoder_decoder", True, "an encoder-decoder model; only decoders have a shape"),
        ("num_local_experts", 4, "num_experts_per_tok (or"),
        ("kv_lora_rank", 16, "qk_rope_head_dim is missing"),
        ("text_config", {"model_type": "qwen9"}, "text_config: hidden_size"),
    ],
)
def test_a_hugging_face_config_with_a_wrong_key(
    tmp_path: Path, key: str, value: Any, expected: str
) -> None:
    file = tmp_path / "config.json"
    config = {name: kept for name, kept in {**HF, key: value}.items() if kept is not GONE}
    file.write_text(json.dumps(config))
    assert expected in complaint(find_model, file)


def test_more_experts_chosen_than_there_are(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**HF, "num_local_experts": 2, "num_experts_per_tok": 3}))
    assert complaint(find_model, file).endswith("top_k 3 of 2 experts is impossible")


def test_a_config_is_named_after_its_folder_and_one_own_may_begin_with_a_mark(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(HF))
    assert find_model(str(folder / "config.json")).name == "my-model"
    shutil.copy(folder / "config.json", tmp_path / "other.json")
    assert find_model(str(tmp_path / "other.json")).name == "other"
    marked = tmp_path / "marked.json"
    marked.write_text(json.dumps(MODEL), encoding="utf-8-sig")
    assert find_model(str(marked)) == find_model("llama-2-7b")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = (
    *HF,
    "num_key_value_heads",
    "head_dim",
    "layer_types",
    "sliding_window",
    "sliding_window_pattern",
    "text_config",
    "num_experts",
    "num_experts_per_tok",
    "mlp_only_layers",
    "kv_lora_rank",
    "time_step_rank",
    "architectures",
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES), st.sampled_from(["llama", "mamba", "x"]))
def test_any_config_is_a_shape_or_a_shape_error(changes: dict[str, Any], model_type: str) -> None:
    config = {**HF, "model_type": model_type, **changes}
    try:
        fine = model_from_hf_config(config, "mine").params() > 0
    except ShapeError as error:
        fine = str(error).startswith("mine: ")
    assert fine
