"""Step times from NVIDIA's measured kernel tables, in the optional ``aiconfigurator-core``.

The package (Apache-2.0) has times of matrix products, attention, experts and messages on many GPUs
under vLLM, SGLang and TensorRT-LLM. Its successor ``aisimulate`` carries the same modules.

A step of decodes takes what the tables say of as many decodes of the same mean context. A step with
chunks takes the sum of

- everything but attention, for all its rows;
- attention of the fresh chunks, as a batch of as many prompts of their mean length;
- attention of the chunks that continue, as one chunk with as many query-key pairs;
- attention of the decodes at their own mean context: it is not the length of the prompts beside.

The host's work between steps is in no table. Swapping takes no time.
"""

import logging
from importlib import import_module, resources
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import ceil
from typing import Protocol

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import plain_name
from servetwin.sim.catalogue.entry import shipped_json
from servetwin.sim.step_times.piecewise import Line, Piece, PiecewiseStepTime
from servetwin.sim.step_times.provenance import Origin
from servetwin.sim.step_times.step_time import FloatArray, Remembered, to_units
from servetwin.sim.step_times.tables.interpolate import LevelArray
from servetwin.sim.step_times.tables.layer_table import as_one_chunk
from servetwin.sim.step_times.tables.table import StepColumns, Table
from servetwin.workloads.errors import ProfileError, did_you_mean

PACKAGES = ("aiconfigurator_core", "aisimulate_core")
DISTRIBUTIONS = {"aisimulate_core": "aisimulate"}
"""The distribution of a package, where it has another name than the package."""
BACKENDS = ("vllm", "sglang", "trtllm")
SYSTEMS: dict[str, str] = shipped_json("step_times/tables/kernel_systems.json")
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
        times = engine.compile(path, SYSTEMS[hardware], backend, tp_size=ranks)
    except Exception as error:  # of the package's own, without a common base
        reason = " ".join(str(error).split())
        raise ProfileError(
            f"--kernels: {backend} has no tables for {path} on {hardware} with {ranks} ranks "
            f"({reason})"
        ) from None
    description = (
        f"kernel tables of {package} {_version(package)} (NVIDIA, Apache-2.0): {path}, {backend} "
        f"on {SYSTEMS[hardware]}; no server measured"
    )
    return times, description


def installed_package() -> str | None:
    """Return the first of ``PACKAGES`` that is installed; None where none is."""
    return next((name for name in PACKAGES if find_spec(name) is not None), None)


def _package() -> str:
    if package := installed_package():
        return package
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
    ours: dict[str, str] = {
        plain_name(name): name for name in hub if not name.endswith("_hf_quant")
    }
    if model not in ours:
        hint = did_you_mean(model, ours, f"there are {', '.join(sorted(ours)[:8])} ...")
        raise ProfileError(f"--kernels: no tables of the model {model!r}; {hint}")
    return ours[model]


_CONTEXTS = (1, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_LOG_DEVIATION = 0.10
"""Assumed of a factor on all times: the tables are of kernels, and no server was measured."""


class KernelTable(PiecewiseStepTime, Table):
    """A model on a GPU by kernel tables, times ``factor``; ``description`` is of the tables."""

    origin: Origin = "kernel tables"

    def __init__(self, times: KernelTimes, description: str, factor: float = 1.0) -> None:
        self.times, self.description, self.factor = times, description, factor
        self.parts = {}
        self._dense = Remembered(self._of_rows)
        self._fresh = Remembered(self._of_fresh)
        self._continued = Remembered(self._of_continued)
        self._steps = Remembered(self._of_decodes)
        self._decode_attention = Remembered(self._of_decode_attention)

    def scaled(self, factor: float) -> "KernelTable":
        """Return a model that takes ``factor`` times as long."""
        return KernelTable(self.times, self.description, self.factor * factor)

    def piece(self, shape: BatchShape, step: int = 0) -> Piece:
        """Return the steps from ``step`` on whose durations are an arithmetic series."""
        decodes, total, growing, chunks, _, _, _, _ = shape
        total += growing * step
        if not chunks:
            return Piece(*self._steps[decodes].piece(total, growing))
        units = self._dense[shape.rows] + self._chunks_units(chunks)
        if decodes:
            units += self._decode_attention[decodes].piece(total, 0)[0]
        return Piece(units, 0, 1)

    def log_deviation(self) -> float:
        """Return the assumed deviation of a factor on all times."""
        return _LOG_DEVIATION

    def summary(self, seed: int = 0) -> list[str]:
        """Return one line on the tables."""
        return [self.description]

    def _levels(self, steps: StepColumns) -> LevelArray:
        return np.ones(len(steps.decodes), dtype=np.int8)

    def _units(self, milliseconds: float) -> int:
        return to_units(1e-3 * self.factor * milliseconds)

    def _of_rows(self, rows: int) -> int:
        return self._units(self.times.mixed_step_breakdown(rows, 0, rows, 2, 0)[1])

    def _chunks_units(self, chunks: tuple[tuple[int, int], ...]) -> int:
        fresh = [n for start, n in chunks if not start]
        continued = [(start, n) for start, n in chunks if start]
        units = 0
        if fresh:
            units += self._fresh[sum(fresh), len(fresh)]
        if continued:
            rows, start = as_one_chunk(continued)
            units += self._continued[round(rows), round(start)]
        return units

    def _of_fresh(self, rows_and_chunks: tuple[int, int]) -> int:
        rows, chunks = rows_and_chunks
        length = ceil(rows / chunks)
        return self._units(self.times.mixed_step_breakdown(rows, 0, length, 2, 0)[2])

    def _of_continued(self, rows_and_start: tuple[int, int]) -> int:
        """Return the units of a chunk; the tables give it as a share of the whole prompt."""
        rows, start = rows_and_start
        length = start + rows
        share = self.times.mixed_step_breakdown(rows, 0, length, 2, start)[2]
        return self._units(share * ceil(length / rows))

    def _of_decodes(self, decodes: int) -> Line:
        of = self.times.decode_step_latency
        return self._line([of(decodes, context, 2) for context in _CONTEXTS], decodes)

    def _of_decode_attention(self, decodes: int) -> Line:
        of = self.times.mixed_step_breakdown
        return self._line([of(1, decodes, context, 2, 0)[3] for context in _CONTEXTS], decodes)

    def _line(self, milliseconds: list[float], decodes: int) -> Line:
        seconds: FloatArray = 1e-3 * self.factor * np.array(milliseconds)
        return Line.of(np.array(_CONTEXTS, dtype=float), seconds, decodes)
