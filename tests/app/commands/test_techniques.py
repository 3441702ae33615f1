"""``servetwin techniques``: the tables with no options, their numbers as JSON, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from servetwin.sim.catalogue.shipped import shipped_models
from tests.support.command import refused, servetwin


def lines(*arguments: object) -> list[str]:
    """What a table prints, no line wider than 100 columns."""
    done = servetwin("techniques", *arguments)
    assert (done.code, done.err) == (0, "")
    found = done.out.splitlines()
    assert max(map(len, found)) <= 100
    return found


def numbers(*arguments: object) -> dict[str, Any]:
    done = servetwin("techniques", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


def words(line: str) -> list[str]:
    return line.split()


def test_the_help_names_every_table() -> None:
    text = "\n".join(lines("--help"))
    assert all(name in text for name in ("list", "intensity", "memory", "latency"))


def test_intensities_with_no_options_are_the_published_table() -> None:
    printed = lines("intensity")
    start = printed.index("attention, its n x l scores through memory")
    assert words(printed[start + 1]) == ["n", "1", "2", "4", "8", "128", "512", "4,096"]
    assert words(printed[start + 2]) == words(
        "l = 128 1.969231 3.878788 7.529412 14.22222 85.33333 - -"
    )
    assert words(printed[start + 5]) == words(
        "l = 32,000 1.984435 3.938219 7.756636 15.05528 127.7445 204.1467 247.2833"
    )
    on_chip = printed.index("attention, its scores on the chip (FlashAttention)")
    assert words(printed[on_chip + 4])[-1] == "4096"


def test_work_per_token_with_no_options_has_two_and_three_matrices() -> None:
    rows = [words(line) for line in lines("intensity") if line.startswith("l = 32,768")]
    assert rows == [
        words("l = 32,768 4096 / 2048 16384 / 8192 5504 / 2752 25984 / 12992"),
        words("l = 32,768 4096 / 2048 16384 / 8192 8256 / 4128 28736 / 14368"),
    ]


def test_intensities_as_numbers_are_not_rounded() -> None:
    report = numbers("intensity")
    cells = report["intensity"]
    assert len(cells) == 75 + 25
    (cell,) = [c for c in cells if (c["kind"], c["rows"], c["keys"]) == ("FFN", 1, 128)]
    assert cell["intensity"] == 2 * 4096 * 11008 / (4096 * 11008 + 4096 + 11008)
    total = report["per_token"][0]["total"]
    assert total == {"flops": 9664 * 2**20, "elements": 4832 * 2**20}


def test_intensity_per_byte_is_half_of_that_per_fp16_element() -> None:
    per_element, per_byte = (
        [cell["intensity"] for cell in numbers("intensity", *arguments)["intensity"]]
        for arguments in ((), ("--element-bytes", 2))
    )
    assert per_byte == [cell / 2 for cell in per_element]
    assert "FLOP/byte at 2 bytes" in lines("intensity", "--element-bytes", 2)[0]
    assert "FLOP/element" in lines("intensity")[0]


def test_a_device_adds_its_ridge_in_both_units() -> None:
    text = "\n".join(lines("intensity", "--hardware", "h100"))
    assert "ridge 295.2239 FLOP/byte = 590.4478 FLOP/element at 2 bytes" in text
    assert "reaches it at 327.62 rows" in text
    tiny = "\n".join(lines("intensity", "--hardware", "h100", "--model", "tiny"))
    assert "ridge" in tiny
    assert "reaches" not in tiny


def test_one_s_own_rows_contexts_and_matrices() -> None:
    asked = ("intensity", "--model", "llama-2-7b", "--rows", "1, 512", "--context", "128,32768")
    report = numbers(*asked, "--ffn-matrices", 2)
    assert {(c["rows"], c["keys"]) for c in report["intensity"]} == {
        (1, 128), (1, 32768), (512, 32768)
    }  # fmt: skip
    assert [row["position"] for row in report["per_token"]] == [128, 32768]
    assert report["per_token"][1]["total"]["flops"] == 25984 * 2**20
    assert numbers(*asked)["per_token"][1]["total"]["flops"] == 28736 * 2**20


def test_many_rows_go_on_below() -> None:
    printed = lines("intensity", "--rows", ",".join(map(str, range(1, 20))))
    assert printed.count("projections") == 3


def test_extremes_stay_within_100_columns() -> None:
    """``lines`` measures the width; here the extremes are shown whole."""
    wide = ("--rows", "1,9999999", "--context", "9999999", "--model", "llama-3-405b")
    assert any(words(line) == ["n", "1", "9,999,999"] for line in lines("intensity", *wide))
    assert "a sequence has 1 tokens" in lines("memory", "--context", 1, "--hardware", "mi300x")[0]
    long = lines("memory", "--context", 10**7, "--hardware", "l4")
    assert "a sequence has 10,000,000 tokens" in long[0]
    batches = [
        words(line)[0] for line in lines("latency", "--batch", "1,100000", "--context", 10**7)
    ]
    assert batches.count("100,000") == 2


def test_a_number_that_is_asked_for_twice_is_shown_once() -> None:
    assert lines("latency", "--kv-heads", "8,8", "--batch", "1,1") == lines(
        "latency", "--kv-heads", 8, "--batch", 1
    )


@pytest.mark.parametrize("model", shipped_models())
def test_every_model_has_all_tables_within_100_columns(model: str) -> None:
    """``lines`` measures the width; here each table is that of the model."""
    intensity = lines("intensity", "--model", model, "--hardware", "a100-80gb")
    assert intensity[0].startswith(f"{model}: FLOP/element")
    memory = lines("memory", "--model", model, "--hardware", "h100")
    assert [words(line)[0] for line in memory].count(model) == 1
    latency = lines("latency", "--model", model, "--tokens-per-day", "1e11")
    assert latency[0].startswith(f"{model} in bf16 on one h100")
    assert "100,000,000,000 tokens a day" in latency[-1]


def test_layers_that_are_no_attention_are_said_to_be_left_out() -> None:
    printed = lines("intensity", "--model", "deepseek-v2")
    assert printed[1].startswith("60 of 60 layers mix by latents or states")
    assert not any(line.startswith("attention") for line in printed)
    assert not any("left" in line or "mix by" in line for line in lines("intensity"))


def test_memory_with_no_options_is_the_whole_catalogue() -> None:
    printed = lines("memory")
    named = {words(line)[0]: words(line)[1:] for line in printed[2:-1]}
    assert sorted(named) == shipped_models()
    assert named["llama-2-7b"] == ["6.738", "13.476", "524,288", "0.0", "2.0000", "156.2"]
    assert "GB" in printed[1]
    assert "GiB" in printed[1]


def test_memory_as_numbers() -> None:
    report = numbers("memory", "--model", "llama-2-7b", "--context", 32768, "--hardware", "h100")
    (row,) = report["models"]
    assert row["kv_bytes_per_token"] == 524_288
    assert row["sequence_bytes"] == 16 * 2**30
    assert row["weight_bytes"] == 2 * 6_738_149_376
    assert row["sequences"] == 3
    assert report["memory_bytes"] == 80e9


def test_formats_change_what_they_are_formats_of() -> None:
    asked = ("memory", "--model", "llama-2-7b")
    plain, small = (numbers(*asked, *more)["models"][0] for more in ((), ("--format", "int8")))
    assert small["weight_bytes"] == plain["weight_bytes"] / 2
    assert small["kv_bytes_per_token"] == plain["kv_bytes_per_token"]
    (kept,) = numbers(*asked, "--kv-format", "fp8")["models"]
    assert kept["kv_bytes_per_token"] == plain["kv_bytes_per_token"] / 2
    assert kept["weight_bytes"] == plain["weight_bytes"]


def test_latency_with_no_options_is_the_lecture_s_table() -> None:
    rows = [words(line)[:7] for line in lines("latency")[2:8]]
    assert rows == [
        words("1 40 13,015,449,600 26,869,760,000 8.020824 124.6755 yes"),
        words("64 40 13,015,449,600 79,717,990,400 23.79642 2689.481 yes"),
        words("256 40 13,015,449,600 240,779,264,000 71.87441 3561.769 no"),
        words("1 8 11,337,728,000 22,843,228,160 6.818874 146.6518 yes"),
        words("64 8 11,337,728,000 33,412,874,240 9.973992 6416.688 yes"),
        words("256 8 11,337,728,000 65,625,128,960 19.58959 13068.16 yes"),
    ]
    text = "\n".join(lines("latency"))
    assert "tend to 3,993.51 as the batch grows, 40 KV heads" in text
    assert "fits 80 GB" in text


def test_latency_as_numbers_is_not_rounded() -> None:
    report = numbers("latency")
    first = report["rows"][0]
    assert first["tokens_per_s"] == 1 / (26_869_760_000 / 3.35e12)
    assert report["most_tokens_per_s"] == [3.35e12 / 838_860_800, 3.35e12 / 167_772_160]


def test_a_model_of_one_s_own_keeps_its_heads_unless_asked() -> None:
    own = numbers("latency", "--model", "llama-3-8b", "--batch", 4)["rows"]
    assert [row["kv_heads"] for row in own] == [8]
    asked = numbers("latency", "--model", "llama-3-8b", "--batch", 4, "--kv-heads", "1,32")["rows"]
    assert [row["kv_heads"] for row in asked] == [1, 32]


def test_a_day_s_tokens_need_so_many_devices() -> None:
    asked = ("latency", "--batch", 64, "--kv-heads", 40, "--tokens-per-day", "100e9")
    assert numbers(*asked)["rows"][0]["devices"] == 431
    assert lines(*asked)[-1] == "100,000,000,000 tokens a day at batch 64, 40 KV heads: 431 x h100"


def test_models_and_devices_by_path(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
    }  # fmt: skip
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(config))
    (row,) = numbers("memory", "--model", path)["models"]
    assert row["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    lines("intensity", "--model", path)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("intensity", "--rows", "1,x"), "--rows: 'x' is not a whole number"),
        (("intensity", "--rows", "1,-2"), "--rows: '-2' is not a whole number"),
        (("intensity", "--rows", "9" * 5000), "is not a whole number"),
        (("intensity", "--context", "0"), "--context: 0 is impossible; it must be 1 to"),
        (("intensity", "--ffn-matrices", "0"), "--ffn-matrices: 0 is impossible"),
        (("intensity", "--element-bytes", "0"), "--element-bytes: 0 is impossible"),
        (("intensity", "--element-bytes", "nan"), "--element-bytes: nan is impossible"),
        (("intensity", "--model", "lama-2-7b"), "no model 'lama-2-7b'; did you mean 'llama-2-7b'?"),
        (("intensity", "--hardware", "h1000"), "no device 'h1000'; did you mean 'h100'?"),
        (("memory", "--model", "/no/such.json"), "/no/such.json: the model cannot be read"),
        (("memory", "--context", "-1"), "--context: -1 is impossible"),
        (("memory", "--format", "int44"), "format: unknown 'int44'; did you mean 'int4'?"),
        (("memory", "--kv-format", "fp88"), "--kv-format: unknown 'fp88'; did you mean 'fp8'?"),
        (("latency", "--batch", "0"), "--batch: 0 is impossible; it must be 1 to 100,000"),
        (("latency", "--batch", "1e3"), "--batch: '1e3' is not a whole number"),
        (("latency", "--kv-heads", "7"), "40 heads of llama-2-13b cannot share 7 KV heads"),
        (("latency", "--model", "mamba-2.8b", "--kv-heads", "8"), "mamba-2.8b has no KV heads"),
        (("latency", "--tokens-per-day", "inf"), "--tokens-per-day: inf is impossible"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], reason: str) -> None:
    assert reason in refused("techniques", *arguments)


NOT_HERE = "tensor-parallel: tensor parallel: 3 ways do not divide the 32 heads of llama-2-7b"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["fp9"], "technique: unknown technique 'fp9'; did you mean 'fp8'?"),
        ([""], "technique: unknown technique ''; known are awq, "),
        (["fp8:bit=4"], "technique fp8: unknown parameter 'bit'; "),
        (["tensor-parallel:ways=3"], f"no technique to compare: {NOT_HERE}"),
        (
            ["tensor-parallel:ways=3", "fp8:missing=refuse"],
            f"no technique to compare: {NOT_HERE}; fp8: ",
        ),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_table_without_a_technique_is_refused(
    names: list[str], reason: str, form: tuple[str, ...]
) -> None:
    only = [part for name in names for part in ("--only", name)]
    assert refused("techniques", *only, *form).startswith(f"servetwin: {reason}")
