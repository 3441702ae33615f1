"""The counts behind the shares, and the script itself on a tiny shape."""

import json

import pytest

from servetwin.engine.models.model_config import model_preset
from tests.benchmarks.device_shares import main, prefill_flops, read_bytes

TINY = model_preset("tiny")


def test_a_decode_reads_every_weight_but_the_embeddings_of_others() -> None:
    """The input embedding is read where it is the output head too."""
    config = model_preset("llama-8b")
    assert read_bytes(config, 1, 0, 2) / 1e9 == pytest.approx(15.0, abs=0.05)
    assert read_bytes(model_preset("llama-1b"), 1, 0, 2) / 1e9 == pytest.approx(2.47, abs=0.01)
    context = read_bytes(config, 32, 128, 2) - read_bytes(config, 32, 0, 2)
    assert context == 32 * 128 * 2 * 32 * 8 * 128 * 2


def test_a_prompt_takes_two_operations_a_weight_and_token() -> None:
    config = model_preset("llama-8b")
    assert prefill_flops(config, 2048) / (2 * 2048 * 6.98e9) == pytest.approx(1.038, abs=0.002)
    attention = prefill_flops(config, 2) - 2 * prefill_flops(config, 1)
    head = 2 * config.vocab_size * config.hidden_size
    assert attention + head == 4 * 1 * config.layers * config.heads * config.head_dim


def test_every_figure_is_printed_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--model", "tiny", "--device", "cpu", "--batches", "1", "3"])
    said = capsys.readouterr().out.splitlines()
    records = [json.loads(line) for line in said if line.startswith("{")]
    steps = [[one["step"] for one in record["figures"]] for record in records]
    assert steps == [["decode 1"], ["decode 1", "decode 3"], [*steps[1], "prefill 2048"]]
    assert all(one["share"] > 0 for one in records[-1]["figures"])
    assert said[1].startswith("tiny decode 1: ")
