"""NVIDIA's measured kernel tables, from the optional package ``aiconfigurator-core``.

The package (Apache-2.0) has times of matrix products, attention, experts and messages on many GPUs
under vLLM, SGLang and TensorRT-LLM. Its successor ``aisimulate`` carries the same modules.
"""

import logging
from importlib import import_module, resources
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Protocol

from servetwin.sim.catalogue.catalogue import plain_name
from servetwin.workloads.errors import ProfileError, did_you_mean

PACKAGES = ("aiconfigurator_core", "aisimulate_core")
DISTRIBUTIONS = {"aisimulate_core": "aisimulate"}
"""The distribution of a package, where it has another name than the package."""
BACKENDS = ("vllm", "sglang", "trtllm")
SYSTEMS = {
    "a100-80gb": "a100_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "l40s": "l40s",
    "rtx-pro-6000": "rtx_pro_6000_server",
}
"""The package's name of each device of ours."""


class KernelTimes(Protocol):
    """Milliseconds of the parts of a step, for one model on one kind of GPU."""

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        """Return the time of a step of decodes that find ``isl`` positions each."""

    def mixed_step_breakdown(
        self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int, prefix: int
    ) -> tuple[float, float, float, float]:
        """Return the time of a mixed step: all, all but attention, of chunks, of decodes."""


def open_kernels(
    model: str, hardware: str, backend: str, ranks: int = 1
) -> tuple[KernelTimes, str]:
    """Return the kernel times of a model of the catalogue, and a line that says what they are.

    Raises ``ProfileError`` where the package is missing, or has no table for these.
    """
    if backend not in BACKENDS:
        hint = did_you_mean(backend, BACKENDS)
        raise ProfileError(f"--kernels: no tables of {backend!r}; {hint}")
    if hardware not in SYSTEMS:
        there = ", ".join(SYSTEMS)
        raise ProfileError(f"--kernels: no tables of the device {hardware!r}; there are {there}")
    package = _package()
    logging.getLogger(package).setLevel(logging.ERROR)
    try:
        engine = import_module(f"{package}.sdk.engine").EngineHandle
    except ImportError as error:
        raise ProfileError(f"--kernels: {package} is there, but does not load ({error})") from None
    path = _hub_name(package, model)
    try:
        found = engine.compile(path, SYSTEMS[hardware], backend, tp_size=ranks)
    except Exception as error:  # of the package's own, without a common base
        reason = " ".join(str(error).split())
        raise ProfileError(
            f"--kernels: {backend} has no tables for {path} on {hardware} with {ranks} ranks "
            f"({reason})"
        ) from None
    said = (
        f"kernel tables of {package} {_version(package)} (NVIDIA, Apache-2.0): {path}, {backend} "
        f"on {SYSTEMS[hardware]}; no server measured"
    )
    return found, said


def installed_package() -> str | None:
    """Return the first of ``PACKAGES`` that is installed; None where none is."""
    return next((name for name in PACKAGES if find_spec(name) is not None), None)


def _package() -> str:
    if found := installed_package():
        return found
    raise ProfileError(
        "--kernels: the package with the tables is missing; install it with "
        "'pip install servetwin[kernels]' (Python 3.11 to 3.13, Linux or macOS on arm64)"
    )


def _version(package: str) -> str:
    try:
        return version(DISTRIBUTIONS.get(package, package.replace("_", "-")))
    except PackageNotFoundError:
        return "of unknown version"


def _hub_name(package: str, model: str) -> str:
    """Return the name on the hub of the model that the package has under a name of ours."""
    folder = resources.files(package).joinpath("model_configs")
    ending = "_config.json"
    files = [one.name for one in folder.iterdir() if one.name.endswith(ending)]
    hub = [name.removesuffix(ending).replace("--", "/") for name in sorted(files)]
    ours: dict[str, Any] = {
        plain_name(name): name for name in hub if not name.endswith("_hf_quant")
    }
    if model not in ours:
        hint = did_you_mean(model, ours, f"there are {', '.join(sorted(ours)[:8])} ...")
        raise ProfileError(f"--kernels: no tables of the model {model!r}; {hint}")
    return str(ours[model])
