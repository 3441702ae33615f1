"""Kernel tables as step times: the parts of a step, runs of steps, and what is missing."""

from pathlib import Path

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.tables import KernelTable
from servetwin.sim.step_times.tables import kernel_table as library
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


def test_its_error_is_assumed_and_said() -> None:
    assert TABLE.log_deviation() == 0.1
    assert TABLE.summary() == ["made"]
    assert TABLE.provenance([1, 64], [10, 6400]).tolist() == ["interpolated"] * 2


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


def test_without_the_package_a_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library, "PACKAGES", ("not_there_at_all",))
    line = refused(
        "replay", SAMPLE, "--model", "qwen3-32b", "--hardware", "h100", "--kernels", "vllm"
    )
    assert "pip install servetwin[kernels]" in line


def test_a_package_of_either_name_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = (
        "class EngineHandle:\n"
        "    @classmethod\n"
        "    def compile(cls, *args, **kwargs):\n"
        "        if args[1] == 'l40s':\n"
        "            raise RuntimeError('no\\ndatabase')\n"
        "        return args, kwargs\n"
    )
    install_made_package(monkeypatch, tmp_path, engine)
    asked, said = library.open_kernels("llama-3.1-8b", "h100", "vllm", 2)
    assert asked == (("meta-llama/Meta-Llama-3.1-8B", "h100_sxm", "vllm"), {"tp_size": 2})  # type: ignore[comparison-overlap]
    assert "made_kernels of unknown version (NVIDIA, Apache-2.0)" in said
    assert said.endswith("no server measured")
    with pytest.raises(ProfileError, match="no tables of the model 'qwen3-8b'; did you mean"):
        library.open_kernels("qwen3-8b", "h100", "vllm")
    with pytest.raises(ProfileError, match=r"vllm has no tables for .* \(no database\)"):
        library.open_kernels("qwen3-32b", "l40s", "vllm")


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
    table = KernelTable(*library.open_kernels("llama-3.1-8b", "rtx-pro-6000", "vllm"))
    decode = 1e3 * table.seconds(BatchShape(128, 128 * 1025, 128))[0]
    prefill = 1e3 * table.seconds(BatchShape(0, 0, 0, ((0, 1024),)))[0]
    assert decode == pytest.approx(25.3, rel=0.1)
    assert prefill == pytest.approx(42.5, rel=0.1)
