"""Read a link: a machine by name, the output of nccl-tests, tables of Vidur, of kernels, or ours.

Sizes are bytes; the tables of NVIDIA's kernel package have elements (``message_size``).
"""

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import cast

from servetwin.sim.catalogue.hardware import Collective
from servetwin.sim.catalogue.links.curves import COLLECTIVES, Curves, MeasuredLink, bus_share
from servetwin.workloads.errors import ShapeError, TraceError, did_you_mean
from servetwin.workloads.files import open_text
from servetwin.workloads.program.package import shipped_json

_MACHINES = shipped_json("sim/catalogue/links/machines.json")
_LFS = "version https://git-lfs.github.com"
_NAMES = {"alltoall": "all_to_all", "sendrecv": "send", "send_recv": "send", "p2p": "send"}
_NCCL_ROW = re.compile(
    r"(\d+)\s+(\d+)\s+([a-z]\w*)\s+(?:(?:\w+)\s+)?(?:(-?\d+)\s+)?(\d+\.?\d*)\s+(\d+\.\d+)\s+(\d+\.\d+)"
)
_ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "float16": 2, "int8": 1, "fp8": 1, "float": 4}
_OURS = ("collective", "ranks", "size_bytes", "time_us")
_VIDUR = ("num_workers", "size")
_KERNELS = ("num_gpus", "message_size", "latency")
# (collective, ranks, bytes, seconds).
Point = tuple[Collective, int, float, float]
Reader = Callable[[dict[str, str]], Point]


def known_machines() -> dict[str, str]:
    """Return the sources of the machines whose links have a name."""
    return {name: machine["source"] for name, machine in _MACHINES.items()}


def find_link(text: str) -> MeasuredLink:
    """Return the link of a named machine or of a file.

    Raises ``ShapeError`` that names the file and line, and what would be right.
    """
    if (machine := _MACHINES.get(text.lower())) is not None:
        return MeasuredLink(machine["latency_s"], machine["bytes_per_s"], text.lower())
    path = Path(text)
    if not path.is_file():
        hint = did_you_mean(text.lower(), _MACHINES)
        raise ShapeError(f"--link: no machine {text!r}; {hint} (or give the path of a file)")
    return MeasuredLink.of(path.name, _curves(path, _points(path)))


def _points(path: Path) -> list[Point]:
    try:
        with open_text(path) as file:
            text = file.whole()
    except TraceError as error:
        raise ShapeError(f"--link: {error}") from error
    if text.startswith(_LFS):
        raise ShapeError(f"--link: {path}: a pointer of Git LFS, not the table; run git lfs pull")
    if "busbw" in text:
        return list(_of_nccl_tests(path, text))
    rows = list(csv.DictReader(text.splitlines()))
    columns = rows[0].keys() if rows else ()
    for needed, read in ((_OURS, _of_ours), (_KERNELS, _of_kernels), (_VIDUR, _of_vidur)):
        if set(needed) <= set(columns):
            return [_numbers(path, line, row, read) for line, row in enumerate(rows, 2)]
    raise ShapeError(
        f"--link: {path}: no output of nccl-tests, and no table of collectives; a CSV has the "
        f"columns {', '.join(_OURS)}"
    )


def _numbers(path: Path, line: int, row: dict[str, str], read: Reader) -> Point:
    try:
        collective, ranks, size, seconds = read(row)
    except (KeyError, TypeError, ValueError) as error:
        raise ShapeError(f"--link: {path}:{line}: {error} is not possible") from None
    if ranks < 2 or not size > 0 or not 0 < seconds < 1e3:
        raise ShapeError(f"--link: {path}:{line}: 2 ranks or more, bytes and seconds above 0")
    return collective, ranks, size, seconds


def _of_ours(row: dict[str, str]) -> Point:
    size, seconds = float(row["size_bytes"]), 1e-6 * float(row["time_us"])
    return _collective(row["collective"]), int(row["ranks"]), size, seconds


def _of_kernels(row: dict[str, str]) -> Point:
    kind = row.get("nccl_dtype") or row.get("allreduce_dtype") or "half"
    size = float(row["message_size"]) * _ELEMENT_BYTES[kind]
    name = _collective(row.get("op_name") or "all_reduce")
    return name, int(row["num_gpus"]), size, 1e-3 * float(row["latency"])


def _of_vidur(row: dict[str, str]) -> Point:
    for name, collective in (("all_reduce", "all_reduce"), ("send_recv", "send")):
        if row.get(f"time_stats.{name}.median"):
            seconds = 1e-3 * float(row[f"time_stats.{name}.median"])
            ranks = max(2, int(row["num_workers"]))
            return cast(Collective, collective), ranks, float(row["size"]), seconds
    raise ValueError("no column time_stats.all_reduce.median: a row")


def _collective(name: str) -> Collective:
    plain = name.strip().lower()
    plain = _NAMES.get(plain, plain)
    if plain not in COLLECTIVES:
        raise ValueError(f"collective {name!r} ({did_you_mean(plain, COLLECTIVES)})")
    return plain


def _of_nccl_tests(path: Path, text: str) -> Iterator[Point]:
    """Yield out-of-place times; a row's bandwidths say how many ranks there were."""
    name = re.search(r"(all_reduce|all_gather|reduce_scatter|alltoall|sendrecv)_perf", text)
    collective = _collective(name[1] if name else "all_reduce")
    ranks = len(set(re.findall(r"#\s+Rank\s+(\d+)", text)))
    if ranks < 2:
        raise ShapeError(f"--link: {path}: no lines '# Rank 0 ...' of 2 devices or more")
    for number, line in enumerate(text.splitlines(), 1):
        row = _NCCL_ROW.search(line)
        if row is None or line.lstrip().startswith("#"):
            continue
        size, seconds, speed = float(row[1]), 1e-6 * float(row[5]), 1e9 * float(row[7])
        crossed = bus_share(collective, ranks) * size / max(seconds, 1e-9)
        if speed > 1e9 and not 0.8 < crossed / speed < 1.25:
            raise ShapeError(
                f"--link: {path}:{number}: {size:.0f} bytes in {row[5]} us over {ranks} ranks are "
                f"{crossed / 1e9:.1f} GB/s of {collective}, and the line has {row[7]}"
            )
        if size > 0 and seconds > 0:
            yield collective, ranks, size, seconds


def _curves(path: Path, points: Iterable[Point]) -> Curves:
    """Return the median time of each size, by rising size."""
    times: dict[tuple[Collective, int], dict[float, list[float]]] = defaultdict(dict)
    for collective, ranks, size, seconds in points:
        times[collective, ranks].setdefault(size, []).append(seconds)
    if not times:
        raise ShapeError(f"--link: {path}: no measured sizes")
    return {
        key: tuple((size, median(times_s)) for size, times_s in sorted(sizes.items()))
        for key, sizes in times.items()
    }
