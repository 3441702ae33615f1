"""Kernel tables as step times: the parts of a step, runs of steps, and what is missing."""

import atexit
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.quantisation import Quantisation
from servetwin.sim.step_times.tables import KernelTable
from servetwin.sim.step_times.tables import kernel_library as library
from servetwin.sim.step_times.tables.kernel_library import kept_table
from servetwin.workloads.errors import ProfileError
from tests.support.command import refused
from tests.support.macro_steps import assert_macro_steps_change_nothing
from tests.support.made_kernels import (
    MadeKernels,
    chunk_ms,
    decodes_ms,
    dense_ms,
    install_made_package,
)
from tests.support.paths import SAMPLE
from tests.support.table_levels import kinds

TABLE = KernelTable(MadeKernels(), "made")


@pytest.mark.parametrize(
    ("shape", "expected_ms"),
    [
        (BatchShape(8, 8 * 513, 8), dense_ms(8) + decodes_ms(8, 512)),
        (BatchShape(0, 0, 0, ((0, 600),)), dense_ms(600) + chunk_ms(0, 600)),
        (BatchShape(0, 0, 0, ((900, 300),)), dense_ms(300) + chunk_ms(900, 300)),
        (BatchShape(0, 0, 0, ((0, 400), (0, 400))), dense_ms(800) + 2 * chunk_ms(0, 400)),
        (
            BatchShape(64, 64 * 4097, 64, ((0, 100), (500, 50))),
            dense_ms(214) + chunk_ms(0, 100) + chunk_ms(500, 50) + decodes_ms(64, 4096),
        ),
    ],
)
def test_a_step_is_the_sum_of_its_parts(shape: BatchShape, expected_ms: float) -> None:
    assert 1e3 * TABLE.seconds(shape)[0] == pytest.approx(expected_ms, abs=1e-6)
    assert TABLE.scaled(2).seconds(shape)[0] == pytest.approx(2 * TABLE.seconds(shape)[0])


def test_macro_steps_change_nothing() -> None:
    assert_macro_steps_change_nothing(TABLE)


def test_unequal_ranks_compute_the_mean_of_their_rows_beside_the_longest_attention() -> None:
    decodes, chunk = BatchShape(8, 8 * 513, 8), BatchShape(0, 0, 0, ((0, 600),))
    longest_ms = max(decodes_ms(8, 512), chunk_ms(0, 600))
    found_ms = 1e3 * TABLE.group_seconds([decodes, chunk])[0]
    assert found_ms == pytest.approx(dense_ms(304) + longest_ms, rel=1e-9)
    for shape in (decodes, chunk):
        equal = TABLE.group_seconds([shape, shape], 3)
        np.testing.assert_allclose(equal, TABLE.seconds(shape, 3), rtol=1e-12)


def test_its_error_is_assumed_and_said() -> None:
    assert TABLE.log_deviation() == 0.1
    assert TABLE.summary() == ["made"]
    assert kinds(TABLE, [1, 64], [10, 6400]) == ["interpolated"] * 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("llama-3.1-8b", "h100", "vlm"), "no tables of 'vlm'; did you mean 'vllm'?"),
        (("llama-3.1-8b", "rtx-4090", "vllm"), "no tables of the device 'rtx-4090'; there are"),
    ],
)
def test_what_the_tables_do_not_have_is_refused(arguments: tuple[str, ...], says: str) -> None:
    with pytest.raises(ProfileError) as error:
        library.open_kernels(*arguments)  # type: ignore[arg-type]
    assert says in str(error.value)


def test_without_the_package_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "PACKAGES", ("not_there_at_all",))
    line = refused("replay", SAMPLE, "--model", "qwen3-32b", "--gpu", "h100", "--times", "kernels")
    assert "pip install servetwin[kernels]" in line


ENGINE = """
from tests.support.made_kernels import MadeKernels

class EngineHandle(MadeKernels):
    @classmethod
    def compile(cls, *args, **options):
        if args[1] == 'l40s' and options['tp_size'] > 2:
            raise RuntimeError('no\\ndatabase')
        if options.get('gemm_quant_mode', 'fp8') != 'fp8':
            raise KeyError('no format')
        made = cls()
        made.given = args, options
        return made
"""


def test_a_package_of_either_name_is_told_the_layout_and_the_formats(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_made_package(monkeypatch, tmp_path, ENGINE)
    fp8 = Quantisation(gemm="fp8", experts="fp8-block", kv="fp8")
    found = library.open_kernels("llama-3.1-8b", "h100", "vllm", Layout(2, 1, 2, 4), fp8, "0.19")
    assert found.times.given == (  # type: ignore[attr-defined]
        ("meta-llama/Meta-Llama-3.1-8B", "h100_sxm", "vllm"),
        {
            "tp_size": 2, "pp_size": 1, "attention_dp_size": 2, "moe_tp_size": 1, "moe_ep_size": 4,
            "gemm_quant_mode": "fp8", "moe_quant_mode": "fp8_block",
            "kvcache_quant_mode": "fp8", "fmha_quant_mode": "bfloat16",
        },
    )  # fmt: skip
    assert "made_kernels of unknown version (NVIDIA, Apache-2.0)" in found.description
    assert found.description.endswith("no server measured; the server is 0.19")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("qwen3-8b", "h100", "vllm"),
            "no tables of the model 'qwen3-8b'; did you mean 'qwen3-32b",
        ),
        (
            ("qwen3-32b", "l40s", "vllm", Layout(4)),
            "l40s with tp=4; there are some with tp=1, tp=2",
        ),
        (("qwen3-32b", "h100", "vllm", Layout(), Quantisation()), "there are some with gemm fp8"),
    ],
)
def test_what_has_no_table_is_refused_with_what_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[Any, ...], says: str
) -> None:
    install_made_package(monkeypatch, tmp_path, ENGINE)
    with pytest.raises(ProfileError) as error:
        library.open_kernels(*arguments)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("name", "hub"),
    [
        ("LLAMA-3.3-70B", "meta-llama/Meta-Llama-3.1-70B"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "meta-llama/Meta-Llama-3.1-70B"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen/Qwen3-235B-A22B"),
        ("Qwen/Qwen3-235B-A22B-FP8", "Qwen/Qwen3-235B-A22B-FP8"),
        ("kimi-k2", "moonshotai/Kimi-K2-Instruct"),
    ],
)
def test_a_checkpoint_of_another_format_is_known_by_its_architecture(name: str, hub: str) -> None:
    package = library.installed_package()
    if package is None:
        pytest.skip("no package with kernel tables is installed: pip install servetwin[kernels]")
    assert library._hub_name(package, name) == hub


def test_a_package_that_lacks_another_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The successor's tables need the compiled part of another package beside them."""
    (tmp_path / "half_installed").mkdir()
    (tmp_path / "half_installed" / "__init__.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(library, "PACKAGES", ("half_installed",))
    says = r"half_installed is there, but does not load \(No module named 'not_there_at_all'\)"
    with pytest.raises(ProfileError, match=says):
        library.open_kernels("llama-3.1-8b", "h100", "vllm")


def test_the_real_tables_are_near_layer_times_of_the_same_gpu() -> None:
    """Two sources of one GPU: kernels of NVIDIA, layers measured through vLLM (in results)."""
    if library.installed_package() is None:
        pytest.skip("no package with kernel tables is installed: pip install servetwin[kernels]")
    table = library.open_kernels("llama-3.1-8b", "rtx-pro-6000", "vllm")
    decode = 1e3 * table.seconds(BatchShape(128, 128 * 1025, 128))[0]
    prefill = 1e3 * table.seconds(BatchShape(0, 0, 0, ((0, 1024),)))[0]
    assert decode == pytest.approx(25.3, rel=0.1)
    assert prefill == pytest.approx(42.5, rel=0.1)


def test_times_that_were_looked_up_need_no_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ends: list[Any] = []
    monkeypatch.setattr(atexit, "register", lambda *of: ends.append(of))
    steps = [BatchShape(8, 8 * 513, 8), BatchShape(0, 0, 0, ((900, 300),))]
    first = [kept_table(lambda: TABLE, "made").seconds(step).tolist() for step in steps]
    for keep, *of in ends:
        keep(*of)
    again = kept_table(lambda: pytest.fail("it was opened"), "made")
    assert [again.seconds(step).tolist() for step in steps[1:]] == first[1:]
    assert again.summary() == ["made"]
