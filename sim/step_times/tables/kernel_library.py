"""Opens NVIDIA's measured kernel tables, in the optional ``aiconfigurator-core``.

The package (Apache-2.0) has times of matrix products, attention, experts and messages on many GPUs
under vLLM, SGLang and TensorRT-LLM. Its successor ``aisimulate`` carries the same modules. Where
its tables lack a point it interpolates, within the table that was asked for; the mode that puts a
data sheet in place of a missing table is never used. Embeddings and norms it always estimates from
the bandwidth of the memory: the description says how large their share is.
"""

import logging
from collections.abc import Iterator
from functools import cache
from importlib import import_module, resources
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from servetwin.sim.catalogue.catalogue import plain_name
from servetwin.sim.catalogue.entry import shipped_json
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.quantisation import Quantisation
from servetwin.sim.step_times.tables.kernel_table import KernelTable
from servetwin.sim.step_times.tables.plausibility import doubts_of
from servetwin.workloads.errors import ProfileError, did_you_mean

PACKAGES = ("aiconfigurator_core", "aisimulate_core")
DISTRIBUTIONS = {"aisimulate_core": "aisimulate"}
"""The distribution of a package, where it has another name than the package."""
BACKENDS = ("vllm", "sglang", "trtllm")

_NAMES = shipped_json("step_times/tables/kernel_names.json")
SYSTEMS: dict[str, str] = _NAMES["systems"]
"""The package's name of each device of ours."""
_ALIASES: dict[str, str] = _NAMES["models"]
_FORMATS: dict[str, dict[str, list[str]]] = _NAMES["formats"]
_LEFT_OUT_S: dict[str, float] = _NAMES["left_out_s"]
"""Seconds that a step of ranks takes beyond the tables, by the start of a model's name. Of MiniMax
M2 it is the norm of queries and keys over all ranks, an all-reduce in each of 62 layers (15 us as
fitted on InferenceMAX)."""
_OPTIONS: dict[str, str] = _NAMES["options"]
"""The package's option of each part of ``Quantisation``, and its names of the formats of a part,
the best first: some run on few devices only."""
_ENDINGS = (
    "-fp8-dynamic",
    "-fp8-static-pertensor",
    "-fp8",
    "-nvfp4",
    "-fp4",
    "-bf16",
    "-int4",
    "-awq",
    "-gptq",
)
_PROBE = (4, 1024)
"""Decodes, and the context of each, of the step that tells the share of estimated parts."""


def open_kernels(
    model: str,
    hardware: str,
    backend: str,
    layout: Layout = Layout(),  # noqa: B008 - it is frozen
    quantisation: Quantisation | None = None,
    version: str | None = None,
) -> KernelTable:
    """Return the step times of a model by its name, in any letter case, or its folder.

    A folder holds a ``config.json`` of an architecture that the package knows. A name that is known
    only with another format (``...-FP8``) means the same architecture. ``quantisation`` None is
    that of the checkpoint in the package. ``version`` is the server's, which the description names
    where the tables are of another.

    With ``layout.dp`` above 1 the table is of *one* rank: a batch is what that rank holds, and
    experts take the tokens of ``dp`` such batches.

    Raises ``ProfileError`` where the package is missing, or has no table for these: it says which
    formats and widths have one.
    """
    if backend not in BACKENDS:
        hint = did_you_mean(backend, BACKENDS)
        raise ProfileError(f"--kernels: no tables of {backend!r}; {hint}")
    if hardware not in SYSTEMS:
        there = ", ".join(SYSTEMS)
        raise ProfileError(f"--kernels: no tables of the device {hardware!r}; there are {there}")
    package = _package()
    logging.getLogger(package).setLevel(logging.ERROR)
    library = _Library(package, SYSTEMS[hardware], backend)
    path = _hub_name(package, model)
    times, formats, doubts, instead = library.opened(path, layout, quantisation)
    table_version = library.table_version()
    description = (
        f"kernel tables of {package} {_version(package)} (NVIDIA, Apache-2.0): {path}, "
        f"{_named(formats)}{instead}; {backend} {table_version} on {SYSTEMS[hardware]}, "
        f"{layout}{_estimated(times)}; no server measured"
    )
    left_out = [s for start, s in _LEFT_OUT_S.items() if plain_name(path).startswith(start)]
    left_out_s = sum(left_out) if layout.tp > 1 else 0.0
    if left_out_s:
        description += f"; {1e3 * left_out_s:.3g} ms a step added that no table holds"
    if version and not table_version.startswith(version):
        description += f"; the server is {version}"
    return KernelTable(times, description, doubts=doubts, left_out_s=left_out_s)


def installed_package() -> str | None:
    """Return the first of ``PACKAGES`` that is installed; None where none is."""
    return next((name for name in PACKAGES if find_spec(name) is not None), None)


class _Library:
    """The tables of one device and server in the package."""

    def __init__(self, package: str, system: str, backend: str) -> None:
        self._sdk = f"{package}.sdk"
        self._package, self._system, self._backend = package, system, backend
        try:
            self._engine = import_module(f"{self._sdk}.engine").EngineHandle
            self._offline: set[str] = import_module(f"{self._sdk}.common").DefaultHFModels
        except ImportError as error:
            raise ProfileError(
                f"--kernels: {package} is there, but does not load ({error})"
            ) from None

    def opened(
        self, path: str, layout: Layout, quantisation: Quantisation | None
    ) -> tuple[Any, dict[str, str], tuple[str, ...], str]:
        """Return the kernel times, the formats of the parts that were given, and the doubts.

        They are those of the choice with the fewest doubts, then the fastest; the last text says
        what spoke against the first of all, where another was taken.

        Raises ``ProfileError`` that says what would work.
        """
        self._offline.add(path)  # it has configs that it does not list, and would download
        there, against = [], []
        for formats in _formats(quantisation):
            try:
                times = self._compiled(path, layout, formats)
            except Exception as error:  # of the package's own, without a common base
                against.append((formats, " ".join(str(error).split())))
                continue
            there.append((times, formats, self._doubts(path, layout, formats, times)))
            if not there[-1][2]:
                break
            against.append((formats, there[-1][2][0]))
        if not there:
            works = self._what_works(path, layout, quantisation)
            raise ProfileError(
                f"--kernels: {self._backend} has no tables for {path} on {self._system} with "
                f"{layout}{_asked(quantisation)}; {works or against[0][1]}"
            )
        taken = min(there, key=lambda one: (len(one[2]), one[0].decode_step_latency(*_PROBE, 2)))
        if against and against[0][0] != taken[1]:
            return *taken, f" (not {_named(against[0][0], taken[1])}: {against[0][1]})"
        return *taken, ""

    def _doubts(
        self, path: str, layout: Layout, formats: dict[str, str], times: Any
    ) -> tuple[str, ...]:
        wider = [
            KernelTable(self._compiled(path, layout, other), "")
            for part, name in formats.items()
            if name != "bfloat16"
            and self._works(path, layout, other := formats | {part: "bfloat16"})
        ]
        least_s = self._weights_s(path, layout, formats)
        return doubts_of(KernelTable(times, ""), least_s, wider)

    def _weights_s(self, path: str, layout: Layout, formats: dict[str, str]) -> float:
        """Return the seconds in which a device can read the weights of one sequence's step.

        Of a layer's experts those of one token, spread evenly. 0 where the package does not tell.
        """
        try:
            build = import_module(f"{self._sdk}.config_builders").build_model_config
            config = build(**_widths(layout), **_given(formats))
            model = import_module(f"{self._sdk}.models").get_model(path, config, self._backend)
            bandwidth = self._database().system_spec["gpu"]["mem_bw"]
            experts = getattr(model, "_topk", 0) / (getattr(model, "_num_experts", 0) or 1)
            weights = sum(
                op.get_weights() * (1 if type(op).__name__ == "GEMM" else experts)
                for op in model.generation_ops
                if type(op).__name__ != "Embedding"
            )
        except Exception:  # of the package's own, without a common base
            return 0.0
        return float(weights / bandwidth)

    def table_version(self) -> str:
        """Return the version of the server whose kernels were measured; ``?`` if unknown."""
        return str(getattr(self._database(), "version", "?"))

    def _compiled(self, path: str, layout: Layout, formats: dict[str, str]) -> Any:
        times = self._engine.compile(
            path, self._system, self._backend, **_widths(layout), **_given(formats)
        )
        times.decode_step_latency(*_PROBE, 2)  # tables are looked up only now
        times.mixed_step_breakdown(512, 4, 1024, 2, 0)
        return times

    def _works(self, path: str, layout: Layout, formats: dict[str, str]) -> bool:
        try:
            self._compiled(path, layout, formats)
        except Exception:  # of the package's own, without a common base
            return False
        return True

    def _what_works(self, path: str, layout: Layout, quantisation: Quantisation | None) -> str:
        """Return formats that have tables: one part changed, else all; else other layouts."""
        choices = _one_changed(quantisation) if quantisation else {}
        for texts in (choices, {f"gemm and experts {f}": _all_in(f) for f in _FORMATS["gemm"]}):
            works = [
                text
                for text, one in texts.items()
                if any(self._works(path, layout, formats) for formats in _formats(one))
            ]
            if works:
                return f"there are some with {', '.join(works)}"
        layouts = [str(one) for one in _near(layout) if self._works(path, one, {})]
        return f"there are some with {' or '.join(dict.fromkeys(layouts[:4]))}" if layouts else ""

    def _database(self) -> Any:
        try:
            databases = import_module(f"{self._sdk}.perf_database")
            return databases.get_database(self._system, self._backend, "current")
        except Exception:  # of the package's own, without a common base
            return None


def _widths(layout: Layout) -> dict[str, int]:
    return {
        "tp_size": layout.tp,
        "pp_size": layout.pp,
        "attention_dp_size": layout.dp,
        "moe_tp_size": layout.moe_tp,
        "moe_ep_size": layout.ep,
    }


def _given(formats: dict[str, str]) -> dict[str, str]:
    return {_OPTIONS[part]: name for part, name in formats.items()}


def _formats(quantisation: Quantisation | None) -> Iterator[dict[str, str]]:
    """Return the package's names of the formats of each part, one choice of names after another."""
    if quantisation is None:
        yield {}
        return
    parts = quantisation.model_dump()
    for names in product(*(_FORMATS[part].get(name, []) for part, name in parts.items())):
        yield dict(zip(parts, names, strict=True))


def _named(formats: dict[str, str], but: dict[str, str] | None = None) -> str:
    """Return the formats in words, only those that differ from ``but``."""
    texts = [f"{part} {n}" for part, n in formats.items() if but is None or but[part] != n]
    return ", ".join(texts) or "its own formats"


def _asked(quantisation: Quantisation | None) -> str:
    if quantisation is None:
        return ""
    return " and " + ", ".join(f"{part} {name}" for part, name in quantisation.model_dump().items())


def _one_changed(given: Quantisation) -> dict[str, Quantisation]:
    return {
        f"{part} {name}": given.model_copy(update={part: name})
        for part, names in _FORMATS.items()
        for name in names
    }


def _all_in(text: str) -> Quantisation:
    return Quantisation.model_validate({"gemm": text, "experts": text})


def _near(layout: Layout) -> Iterator[Layout]:
    """Return layouts of as many devices, then of more and fewer."""
    for devices in (layout.stage_devices, *(1, 2, 4, 8, 16)):
        yield Layout(tp=devices, ep=1)
        yield Layout(tp=devices, ep=devices)


def _estimated(times: Any) -> str:
    """Return the share of a step of decodes that no table has, where the package tells."""
    parts = getattr(times, "decode_step_per_op", None)
    if parts is None:
        return ""
    found = [(ms, source) for _, ms, _, source in parts(*_PROBE, 2)]
    estimated = sum(ms for ms, source in found if source not in ("silicon", "mixed"))
    return (
        f"; {estimated / sum(ms for ms, _ in found):.0%} of a decode step estimated from bandwidth"
    )


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


@cache
def _hub_names(package: str) -> dict[str, str]:
    """Return the package's models, by the last part of their name in lower case."""
    folder = resources.files(package).joinpath("model_configs")
    ending = "_config.json"
    files = [one.name for one in folder.iterdir() if one.name.endswith(ending)]
    hub = [name.removesuffix(ending).replace("--", "/") for name in sorted(files)]
    return {plain_name(name): name for name in hub if not name.endswith("_hf_quant")}


def _hub_name(package: str, model: str) -> str:
    """Return the package's name of a model, or the folder of a ``config.json`` as it is.

    The name is its own, an alias, or that of another format.
    """
    if Path(model, "config.json").is_file():
        return model
    ours = _hub_names(package)
    name = plain_name(model)
    for candidate in (name, _ALIASES.get(name, name), *_other_formats(name)):
        if (there := _ALIASES.get(candidate, candidate)) in ours:
            return ours[there]
    hint = did_you_mean(name, ours, f"there are {', '.join(sorted(ours)[:8])} ...")
    raise ProfileError(f"--kernels: no tables of the model {model!r}; {hint}")


def _other_formats(name: str) -> Iterator[str]:
    bare = next((name.removesuffix(e) for e in _ENDINGS if name.endswith(e)), name)
    yield from (bare, bare.removesuffix("-instruct"))
    for ending in ("-instruct", *_ENDINGS):
        yield bare + ending
