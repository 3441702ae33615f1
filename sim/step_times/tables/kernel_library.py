"""Opens NVIDIA's measured kernel tables, in the optional ``aiconfigurator-core``.

The package (Apache-2.0) has times of matrix products, attention, experts and messages on many GPUs
under vLLM, SGLang and TensorRT-LLM. Its successor ``aisimulate`` carries the same modules. Where
its tables lack a point it interpolates, within the table that was asked for; the mode that puts a
data sheet in place of a missing table is never used. Embeddings and norms it always estimates from
the bandwidth of the memory: the description says how large their share is.

Kernel times in the user's cache: what one command looks up, the next finds there.

Which models, devices and backends have kernel tables, by the package's own list.
"""

import atexit
import csv
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib import import_module, resources
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from servetwin.sim.catalogue.hub_names import plain_name, same_shape
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.quantisation import Quantisation
from servetwin.sim.step_times.tables.kernel_table import KernelTable
from servetwin.sim.step_times.tables.plausibility import doubts_of
from servetwin.workloads.errors import ProfileError, TraceError, did_you_mean, require_name
from servetwin.workloads.files import cache_folder, write_whole
from servetwin.workloads.program.package import shipped_json

# Files whose change makes a kept entry worthless.
_SOURCES = ("kernel_library.py", "kernel_names.json", "plausibility.py")
_HEAD = ("description", "doubts", "left_out_s")


class KeptTimes:
    """Kernel times (``KernelTimes``); those that are not known come from the table."""

    def __init__(self, known: dict[str, Any], opened: Callable[[], KernelTable]) -> None:
        self._known, self._opened = known, opened

    def decode_step_latency(self, *of: int) -> float:
        """Return the time of a step of decodes."""
        return float(self._time("decode_step_latency", of))

    def mixed_step_breakdown(self, *of: int) -> tuple[float, float, float, float]:
        """Return the times of a mixed step: all, all but attention, of chunks, of decodes."""
        whole, dense, chunks, decodes = self._time("mixed_step_breakdown", of)
        return whole, dense, chunks, decodes

    def _time(self, name: str, of: tuple[int, ...]) -> Any:
        key = repr(of)  # five numbers for a mixed step, three for one of decodes
        if key not in self._known:
            self._known[key] = getattr(self._opened().times, name)(*of)
        return self._known[key]


def kept_table(opened: Callable[[], KernelTable], *of: object) -> KernelTable:
    """Return the table that ``opened`` returns; it is opened only for times that are not kept.

    ``of`` is all that the times depend on. Those that are new are kept when Python ends.
    """
    source = [Path(__file__).with_name(name).read_bytes() for name in _SOURCES]
    name = hashlib.sha256(repr((of, source)).encode()).hexdigest()[:16]
    path, opened = cache_folder() / f"kernels-{name}.json", cache(opened)
    try:
        entry = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        entry = {"known": {}} | {part: getattr(opened(), part) for part in _HEAD}
    atexit.register(_keep, path, entry, len(entry["known"]))
    times, doubts = KeptTimes(entry["known"], opened), tuple(entry["doubts"])
    return KernelTable(times, entry["description"], 1.0, doubts, entry["left_out_s"])


def _keep(path: Path, entry: dict[str, Any], before: int) -> None:
    if len(entry["known"]) > before:
        with suppress(OSError, TraceError):  # without it a command takes longer, no more
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(entry))


PACKAGES = ("aiconfigurator_core", "aisimulate_core")
# The distribution of a package, where it has another name than the package.
DISTRIBUTIONS = {"aisimulate_core": "aisimulate"}
UNKNOWN = "of unknown version"
BACKENDS = ("vllm", "sglang", "trtllm")

# The package's names of our devices, widths and formats. Of formats the best comes first: some are
# of few devices, or stand in for one whose table is doubtful. ``left_out_s`` are seconds that a
# step of ranks takes beyond the tables, by the start of a model's name: of MiniMax M2 the norm of
# queries and keys over all ranks, an all-reduce in each of 62 layers (15 us, fitted).
_NAMES: dict[str, Any] = shipped_json("sim/step_times/tables/kernel_names.json")
SYSTEMS: dict[str, str] = _NAMES["systems"]
# Decodes, and the context of each, of the step that tells the share of estimated parts.
_PROBE = (4, 1024)

# The package's name of the format of each part.
Formats = dict[str, str]


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
    require_name(backend, BACKENDS, "--times kernels: no tables of", ProfileError)
    if hardware not in SYSTEMS:
        there = ", ".join(SYSTEMS)
        raise ProfileError(
            f"--times kernels: no tables of the device {hardware!r}; there are {there}"
        )
    package = _package()
    of = package, model, hardware, backend, layout, quantisation, version
    if _version(package) == UNKNOWN or _is_folder(model):  # of which another may come any time
        return _opened(*of)
    return kept_table(partial(_opened, *of), _version(package), *of)


def _opened(
    package: str, model: str, hardware: str, backend: str,
    layout: Layout, quantisation: Quantisation | None, version: str | None,
) -> KernelTable:  # fmt: skip
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
    left_out = _NAMES["left_out_s"].items() if layout.tp > 1 else ()
    left_out_s = sum(s for start, s in left_out if plain_name(path).startswith(start))
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
        self._system, self._backend, self._reason = system, backend, ""
        try:
            self._sdk = {
                name: import_module(f"{package}.sdk.{name}")
                for name in ("engine", "common", "perf_database", "models", "config_builders")
            }
        except ImportError as error:
            raise ProfileError(
                f"--times kernels: {package} is there, but does not load ({error})"
            ) from None

    def opened(
        self, path: str, layout: Layout, quantisation: Quantisation | None
    ) -> tuple[Any, Formats, tuple[str, ...], str]:
        """Return the kernel times, the formats of the parts that were given, and the doubts.

        They are those of the choice with the fewest doubts, then the fastest; the last text says
        what spoke against the first of all, where another was taken.

        Raises ``ProfileError`` that says what would work.
        """
        # it has configs that it does not list, and would download
        self._sdk["common"].DefaultHFModels.add(path)
        there: list[tuple[Any, Formats, tuple[str, ...]]] = []
        against: list[tuple[Formats, str]] = []
        for formats in _formats(quantisation):
            if times := self._times(path, layout, formats):
                there.append((times, formats, self._doubts(path, layout, formats, times)))
                if not there[-1][2]:
                    break
            against.append((formats, there[-1][2][0] if times else self._reason))
        if not there:
            asked = quantisation.model_dump().items() if quantisation else ()
            raise ProfileError(
                f"--times kernels: {self._backend} has no tables for {path} on {self._system} with "
                f"{', '.join([str(layout), *(f'{part} {name}' for part, name in asked)])}; "
                f"{self._what_works(path, layout, quantisation)}"
            )
        taken = min(there, key=lambda one: (len(one[2]), one[0].decode_step_latency(*_PROBE, 2)))
        if against and against[0][0] != taken[1]:
            return *taken, f" (not {_named(against[0][0], taken[1])}: {against[0][1]})"
        return *taken, ""

    def table_version(self) -> str:
        """Return the version of the server whose kernels were measured."""
        return str(self._database().version)

    def _database(self) -> Any:
        get = self._sdk["perf_database"].get_database
        return get(self._system, self._backend, "current")

    def _times(self, path: str, layout: Layout, formats: Formats) -> Any:
        """Return the kernel times, or None where a table is missing."""
        try:
            times = self._sdk["engine"].EngineHandle.compile(
                path, self._system, self._backend, **_options(layout, formats)
            )
            times.decode_step_latency(*_PROBE, 2)  # tables are looked up only now
            times.mixed_step_breakdown(512, 4, 1024, 2, 0)
        except Exception as error:  # of the package's own, without a common base
            self._reason = " ".join(str(error).split())
            return None
        return times

    def _doubts(self, path: str, layout: Layout, formats: Formats, times: Any) -> tuple[str, ...]:
        less = [part for part, name in formats.items() if name != "bfloat16"]
        wider = (self._times(path, layout, formats | {part: "bfloat16"}) for part in less)
        return doubts_of(
            KernelTable(times, ""),
            self._weights_s(path, layout, formats),
            [KernelTable(one, "") for one in wider if one],
        )

    def _weights_s(self, path: str, layout: Layout, formats: Formats) -> float:
        """Return the seconds in which a device can read the weights of one sequence's step.

        Of a layer's experts those of one token, spread evenly.
        """
        config = self._sdk["config_builders"].build_model_config(**_options(layout, formats))
        model = self._sdk["models"].get_model(path, config, self._backend)
        experts = getattr(model, "_topk", 0) / (getattr(model, "_num_experts", 0) or 1)
        weights = sum(
            op.get_weights() * (1 if type(op).__name__ == "GEMM" else experts)
            for op in model.generation_ops
            if type(op).__name__ != "Embedding"
        )
        return float(weights / self._database().system_spec["gpu"]["mem_bw"])

    def _what_works(self, path: str, layout: Layout, given: Quantisation | None) -> str:
        """Return formats of a part that have tables, else layouts with the checkpoint's own."""
        choices = {
            f"{part} {name}": (given or Quantisation()).model_copy(update={part: name})
            for part, names in _NAMES["formats"].items()
            for name in names
        }
        works = [
            text
            for text, one in choices.items()
            if any(self._times(path, layout, formats) for formats in _formats(one))
        ]
        if not works:
            widths = (layout.stage_devices, 1, 2, 4, 8, 16)
            near = [Layout(tp=tp, ep=ep) for tp in widths for ep in {1, tp}]
            works = [str(one) for one in dict.fromkeys(near) if self._times(path, one, {})][:4]
        if not works:
            return f"nor in any format or layout; take --times sheet ({self._reason[:60]} ...)"
        return f"there are some with {', '.join(works)}"


def _options(layout: Layout, formats: Formats) -> dict[str, Any]:
    """Return the widths and formats as the package takes them."""
    widths = {option: getattr(layout, name) for name, option in _NAMES["widths"].items()}
    return widths | {_NAMES["options"][part]: name for part, name in formats.items()}


def _formats(quantisation: Quantisation | None) -> Iterator[Formats]:
    """Return the package's names of the formats of each part, one choice of names after another."""
    parts = quantisation.model_dump() if quantisation else {}
    choices = (_NAMES["formats"][part].get(name, []) for part, name in parts.items())
    return (dict(zip(parts, names, strict=True)) for names in product(*choices))


def _named(formats: Formats, but: Formats | None = None) -> str:
    """Return the formats in words, only those that differ from ``but``."""
    texts = [f"{part} {n}" for part, n in formats.items() if but is None or but[part] != n]
    return ", ".join(texts) or "its own formats"


def _estimated(times: Any) -> str:
    """Return the share of a step of decodes that no table has."""
    parts = [(ms, source) for _, ms, _, source in times.decode_step_per_op(*_PROBE, 2)]
    estimated = sum(ms for ms, source in parts if source not in ("silicon", "mixed"))
    return f"; {estimated / sum(ms for ms, _ in parts):.0%} of a decode estimated from bandwidth"


def _package() -> str:
    if package := installed_package():
        return package
    raise ProfileError(
        "--times kernels: the package with the tables is missing; install it with "
        "'pip install servetwin[kernels]' (Python 3.11 to 3.13, Linux or macOS on arm64)"
    )


def _version(package: str) -> str:
    try:
        return version(DISTRIBUTIONS.get(package, package.replace("_", "-")))
    except PackageNotFoundError:
        return UNKNOWN


@cache
def _hub_names(package: str) -> dict[str, str]:
    """Return the package's models, by their names without owner and by the catalogue's names."""
    folder = resources.files(package).joinpath("model_configs")
    ending = "_config.json"
    files = [one.name.removesuffix(ending) for one in folder.iterdir() if ending in one.name]
    hub = [name.replace("--", "/") for name in files if not name.endswith("_hf_quant")]
    plain: dict[str, str] = {}
    for name in sorted(hub, key=lambda name: (len(name), name)):
        plain.setdefault(plain_name(name), name)
    return plain | {name.lower().rpartition("/")[2]: name for name in hub}


def _is_folder(model: str) -> bool:
    return Path(model, "config.json").is_file()


def _hub_name(package: str, model: str) -> str:
    """Return the package's name of a model, or the folder of a ``config.json`` as it is.

    The name is its own, or that of a model of the same shape.
    """
    if _is_folder(model):
        return model
    ours = _hub_names(package)
    own = model.lower().rpartition("/")[2]
    for name in (own, plain_name(model), *map(plain_name, same_shape(model))):
        if name in ours:
            return ours[name]
    hint = did_you_mean(own, ours, f"there are {', '.join(sorted(ours)[:8])} ...")
    raise ProfileError(
        f"--times kernels: no tables of the model {model!r}; {hint} (or take --times sheet)"
    )


# Backends by device, by the plain name of a model.
Support = dict[str, dict[str, tuple[str, ...]]]


def backends_with_tables(model: str, device: str) -> tuple[str, ...]:
    """Return the backends whose kernels were measured for a model of this shape on a device.

    Empty where no package with tables is installed.
    """
    support = kernel_support()
    names = (plain_name(model), *map(plain_name, same_shape(model)))
    return next((support[n][device] for n in names if device in support.get(n, {})), ())


@cache
def kernel_support() -> Support:
    """Return the backends by device, by the plain name of each model of the package."""
    package = installed_package()
    if package is None:
        return {}
    support: Support = {}
    folder = resources.files(package).joinpath("systems", "support_matrix")
    for device, system in SYSTEMS.items():
        table = folder.joinpath(f"{system}.csv")
        if not table.is_file():
            continue
        for row in csv.DictReader(table.read_text("utf-8").splitlines()):
            if row["Mode"] == "agg" and row["Status"] == "PASS":
                backends = support.setdefault(plain_name(row["HuggingFaceID"]), {})
                before = backends.get(device, ())
                backends[device] = tuple(dict.fromkeys((*before, row["Backend"])))
    return support
