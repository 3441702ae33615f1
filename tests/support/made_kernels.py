"""Kernel times by formulas, and a package of kernel tables made of them."""

import sys
from math import ceil
from pathlib import Path

import pytest

from servetwin.sim.step_times.tables import kernel_library as library

OTHER_MODULES = {
    "common": "DefaultHFModels = set()\n",
    "perf_database": """
from types import SimpleNamespace

def get_database(system, backend, version):
    return SimpleNamespace(version="0.24.0", system_spec={"gpu": {"mem_bw": 1e12}})
""",
    "models": """
from types import SimpleNamespace

def get_model(path, config, backend):
    return SimpleNamespace(generation_ops=[])
""",
    "config_builders": "build_model_config = dict\n",
}
"""The modules of the package beside ``engine``, as far as they are used."""


def dense_ms(rows: int) -> float:
    return 10.0 + 0.04 * rows


def chunk_ms(start: int, rows: int) -> float:
    return 0.1 + 2e-6 * rows * (start + rows / 2)


def decodes_ms(decodes: int, context: int) -> float:
    return 0.2 + 1e-4 * decodes * context


class MadeKernels:
    """Kernel times by formulas, in the shape of the package: see ``KernelTimes``."""

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        return dense_ms(gen_tokens) + decodes_ms(gen_tokens, isl)

    def decode_step_per_op(
        self, gen_tokens: int, isl: int, osl: int
    ) -> list[tuple[str, float, float, str]]:
        return [("norm", 1.0, 0.0, "empirical"), ("all else", 9.0, 0.0, "silicon")]

    def mixed_step_breakdown(
        self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int, prefix: int
    ) -> tuple[float, float, float, float]:
        prompts = max(1, ctx_tokens // (isl - prefix))
        whole = prompts * chunk_ms(prefix, isl - prefix)
        parts = (
            dense_ms(ctx_tokens + gen_tokens),
            whole / ceil(isl / ctx_tokens),
            decodes_ms(gen_tokens, isl) if gen_tokens else 0.0,
        )
        return (sum(parts), *parts)


def install_made_package(monkeypatch: pytest.MonkeyPatch, folder: Path, engine: str) -> None:
    """Put a stand-in for the package in place: configurations, and ``engine`` as its source."""
    root = folder / "made_kernels"
    (root / "model_configs").mkdir(parents=True)
    (root / "sdk").mkdir()
    for name in ("", "sdk"):
        (root / name / "__init__.py").write_text("")
    for model in ("meta-llama--Meta-Llama-3.1-8B", "nvidia--GLM-5-NVFP4", "Qwen--Qwen3-32B"):
        (root / "model_configs" / f"{model}_config.json").write_text("{}")
    (root / "model_configs" / "nvidia--GLM-5-NVFP4_hf_quant_config.json").write_text("{}")
    (root / "sdk" / "engine.py").write_text(engine)
    for name, source in OTHER_MODULES.items():
        (root / "sdk" / f"{name}.py").write_text(source)
    for module in [name for name in sys.modules if name.startswith("made_kernels")]:
        monkeypatch.delitem(sys.modules, module)  # of another test
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(library, "PACKAGES", ("not_there_at_all", "made_kernels"))
