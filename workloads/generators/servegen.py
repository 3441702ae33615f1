"""ServeGen client models: how each client of a model behaved, window by window, and its requests.

A folder holds two files per client, plain or gzipped. ``chunk-N-trace.csv`` (no header) has the
windows: start in seconds, requests per second, CV, family (Gamma, Weibull, or empty where the
client is idle), shape, scale. ``chunk-N-dataset.json`` has the lengths, by the start of coarser
windows: for each field a dictionary {value: probability}, written as a string.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from servetwin.workloads.errors import TraceError, require_name
from servetwin.workloads.fields import MAX_COUNT
from servetwin.workloads.files import open_text
from servetwin.workloads.generators.arrivals import (
    FloatArray,
    GammaArrivals,
    RenewalProcess,
    WeibullArrivals,
    arrivals_within,
    check_positive,
)
from servetwin.workloads.generators.generate import MOST_REQUESTS, random_streams
from servetwin.workloads.generators.lengths import IntArray
from servetwin.workloads.program.key_values import number_in
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

SOURCE = "servegen"
_TRACE_NAME = re.compile(r"chunk-\d+-trace\.csv(\.gz)?")

DEFAULT_WINDOW_S = 600.0
"""How long a window lasts where it is the only one; else until the next one starts."""

FAMILIES: Mapping[str, Callable[[float, float], RenewalProcess]] = {
    "Gamma": GammaArrivals.of_shape,
    "Weibull": WeibullArrivals.of_shape,
}
"""The distributions of gaps. Their shape is taken as fitted, their scale from the window's rate."""

Modal = Mapping[str, int] | None


class Window(NamedTuple):
    """One client from ``start_s`` to ``end_s``; idle where ``process`` is None."""

    start_s: float
    end_s: float
    process: RenewalProcess | None


class Distribution(NamedTuple):
    """Values and their probabilities."""

    values: FloatArray
    probabilities: FloatArray

    def sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return ``count`` of the values."""
        return rng.choice(self.values, count, p=self.probabilities)


Lengths = Mapping[str, Distribution]
"""The distributions of one length window by the name of their field."""


class ServeGenClient(NamedTuple):
    """A client's windows, and the lengths it asks for by the start of their windows."""

    name: str
    windows: tuple[Window, ...]
    lengths: Mapping[float, Lengths]


def read_clients(folder: Path, names: Sequence[str] = ()) -> list[ServeGenClient]:
    """Read the clients of a folder, or the named ones (``chunk-12`` or ``12``), in order of
    numbers.

    Raises TraceError naming file, line and field where something is missing or malformed.
    """
    paths = [path for path in sorted(folder.glob("*")) if _TRACE_NAME.fullmatch(path.name)]
    files = {_name(path): path for path in paths}
    if not files:
        raise TraceError(f"{folder}: no ServeGen clients here: wants chunk-N-trace.csv files")
    chosen = [_known(name, files) for name in names] or list(files)
    chosen = sorted(set(chosen), key=lambda name: (len(name), name))
    return [_client(name, files[name]) for name in chosen]


def _client(name: str, path: Path) -> ServeGenClient:
    windows, lengths = _windows(path), _lengths(_dataset(path))
    if not lengths and any(window.process for window in windows):
        raise TraceError(f"{_dataset(path)}: no window has lengths")
    return ServeGenClient(name, windows, lengths)


def _name(path: Path) -> str:
    return path.name.split("-trace.csv")[0]


def _known(name: str, files: Mapping[str, Path]) -> str:
    full = name if name.startswith("chunk-") else f"chunk-{name}"
    require_name(full, files, "no ServeGen client", TraceError)
    return full


def _dataset(trace_path: Path) -> Path:
    """Return the file of lengths beside a file of windows, gzipped or not."""
    plain = trace_path.with_name(f"{_name(trace_path)}-dataset.json")
    zipped = plain.with_name(f"{plain.name}.gz")
    return zipped if zipped.exists() else plain


def _windows(path: Path) -> tuple[Window, ...]:
    try:
        with open_text(path) as lines:
            rows = [_window_row(path, line, row) for line, row in enumerate(csv.reader(lines), 1)]
    except csv.Error as error:
        raise TraceError(f"{path}: not CSV: {error}") from None
    if not rows:
        raise TraceError(f"{path}: empty, a client has at least one window")
    starts_s = [start_s for start_s, _ in rows]
    lasts_s = starts_s[-1] - starts_s[-2] if len(rows) > 1 else DEFAULT_WINDOW_S
    for line, (before_s, after_s) in enumerate(pairwise(starts_s), 2):
        if after_s <= before_s:
            raise TraceError(f"{path}:{line}: a window starts at {after_s:g} s, after {before_s:g}")
    ends_s = [*starts_s[1:], starts_s[-1] + lasts_s]
    spans = zip(rows, ends_s, strict=True)
    return tuple(Window(start_s, end_s, process) for (start_s, process), end_s in spans)


def _window_row(path: Path, line: int, row: list[str]) -> tuple[float, RenewalProcess | None]:
    where = f"{path}:{line}"
    if len(row) != 6:
        raise TraceError(f"{where}: {len(row)} cells, not start,rate,cv,family,shape,scale")
    family = row[3]
    start_s = _number(f"{where}: start", row[0])
    rate_per_s = _number(f"{where}: rate", row[1])
    if not rate_per_s:
        return start_s, None
    if family not in FAMILIES:
        raise TraceError(f"{where}: family: must be {' or '.join(FAMILIES)} ({family!r})")
    shape = _number(f"{where}: shape", row[4])
    try:
        return start_s, FAMILIES[family](rate_per_s, shape)
    except (TraceError, ZeroDivisionError):
        raise TraceError(f"{where}: shape: impossible for {family} gaps ({row[4]!r})") from None


def _number(where: str, cell: str) -> float:
    value = number_in(cell)
    if not value >= 0:
        raise TraceError(f"{where}: not a number from 0 on ({cell!r})")
    return value


def _lengths(path: Path) -> dict[float, Lengths]:
    """Return the lengths by window start, without the windows in which the client sent nothing."""
    with open_text(path) as text:
        try:
            record = json.loads(text.whole())
        except ValueError as error:
            raise TraceError(f"{path}: not JSON ({error})") from None
    if not isinstance(record, dict):
        raise TraceError(f"{path}: not a JSON object of windows")
    windows = {
        _number(f"{path}: window", start): _distributions(path, start, fields)
        for start, fields in record.items()
    }
    return {start: fields for start, fields in sorted(windows.items()) if fields}


def _distributions(path: Path, start: str, fields: Any) -> Lengths:
    where = f"{path}: window {start!r}"
    if not isinstance(fields, dict):
        raise TraceError(f"{where}: not a JSON object of fields")
    for names in ({"output_tokens"}, {"input_tokens", "text_tokens"}):
        if not names & fields.keys():
            raise TraceError(f"{where}: field {' or '.join(sorted(names))} is missing")
    by_field = {name: _distribution(f"{where}: {name}", text) for name, text in fields.items()}
    lengths = {name: distribution for name, distribution in by_field.items() if distribution}
    return lengths if len(lengths) == len(by_field) else {}


def _distribution(where: str, text: Any) -> Distribution | None:
    """Parse the dictionary of numbers in a string; None where it is empty."""
    if not (isinstance(text, str) and text[:1] == "{" and text[-1:] == "}"):
        raise TraceError(f"{where}: not a dictionary written as a string ({str(text)[:40]!r})")
    if not text[1:-1].strip():
        return None
    try:
        pairs = np.array(text[1:-1].replace(":", ",").split(","), np.float64).reshape(-1, 2)
    except ValueError:
        raise TraceError(f"{where}: not a dictionary of numbers ({text[:40]!r})") from None
    values, weights = pairs.T
    if not (pairs.min() >= 0 and pairs.max() <= MAX_COUNT and weights.sum() > 0):
        raise TraceError(
            f"{where}: values and probabilities must be 0 or positive, up to {MAX_COUNT}"
        )
    return Distribution(values, weights / weights.sum())


def generate_servegen(
    clients: Sequence[ServeGenClient],
    seed: int,
    start_s: float = 0.0,
    span_s: float = 600.0,
    rate_scale: float = 1.0,
) -> Trace:
    """Generate the requests of clients from ``start_s`` on, at ``rate_scale`` times their rates.

    Each window is a process of its own that began long ago, so its mean rate is exact. A client is
    a ``tenant``. Prompt and output are drawn independently of one another: the source has no joint
    distribution. Each client has its own random streams: leaving one out changes no other.

    Raises TraceError for a span that no client's windows cover, or without a single request.
    """
    check_positive("rate factor", rate_scale)
    check_positive("span", span_s)
    if start_s < 0:
        raise TraceError(f"a start must be 0 or positive, not {start_s:g} s")
    _require_possible(clients, start_s, start_s + span_s, rate_scale)
    requests = [
        request
        for client in clients
        for request in _client_requests(client, seed, start_s, start_s + span_s, rate_scale)
    ]
    if not requests:
        last_s = max(client.windows[-1].end_s for client in clients)
        where = f"from {start_s:g} to {start_s + span_s:g} s: the windows end at {last_s:g} s"
        raise TraceError(f"no requests {where}; try another span or a higher rate scale")
    requests.sort(key=lambda request: request.arrival_s)
    names = ", ".join(client.name for client in clients)
    note = (
        f"{counted(len(clients), 'ServeGen client')} ({names}), {start_s:g} to"
        f" {start_s + span_s:g} s, rates scaled by {rate_scale:g}, seed {seed}; prompt and output"
        " drawn independently"
    )
    return Trace(tuple(requests), SOURCE, notes=(note,))


def _require_possible(
    clients: Sequence[ServeGenClient], start_s: float, end_s: float, rate_scale: float
) -> None:
    """Raise TraceError where more requests are expected than a trace has at most."""
    expected = rate_scale * sum(
        window.process.rate_per_s
        * max(0.0, min(window.end_s, end_s) - max(window.start_s, start_s))
        for client in clients
        for window in client.windows
        if window.process
    )
    if expected > MOST_REQUESTS:
        raise TraceError(
            f"{expected:.3g} requests from {start_s:g} to {end_s:g} s; a trace has at most "
            f"{MOST_REQUESTS:,}: take a shorter span or a lower rate scale"
        )


def _client_requests(
    client: ServeGenClient, seed: int, start_s: float, end_s: float, rate_scale: float
) -> Iterator[Request]:
    number = int(client.name.removeprefix("chunk-"))
    arrivals_rng, lengths_rng = random_streams(seed, 2, number)
    arrivals_s = np.concatenate([
        _window_arrivals_s(window, start_s, end_s, rate_scale, arrivals_rng)
        for window in client.windows
    ])  # fmt: skip
    times_s = (arrivals_s - start_s).round(6).tolist()
    sizes = chain.from_iterable(
        _draw(lengths, requests, lengths_rng)
        for lengths, requests in _by_length_window(client, arrivals_s)
    )
    for row, (arrival_s, lengths) in enumerate(zip(times_s, sizes, strict=True), 1):
        prompt_tokens, output_tokens, reasoning_tokens, modal = lengths
        yield Request(
            f"{SOURCE}:{client.name}.{row}",
            arrival_s,
            prompt_tokens,
            output_tokens,
            reasoning_tokens=reasoning_tokens,
            tenant=client.name,
            modal=modal,
        )


def _window_arrivals_s(
    window: Window, start_s: float, end_s: float, rate_scale: float, rng: np.random.Generator
) -> FloatArray:
    """Return the arrivals of the window that lie in the span."""
    from_s, to_s = max(window.start_s, start_s), min(window.end_s, end_s)
    if window.process is None or from_s >= to_s:
        return np.empty(0)
    # at k times the rate, k times the time passes in the process
    process_s = arrivals_within(window.process, rate_scale * (to_s - from_s), rng)
    return from_s + process_s / rate_scale


def _by_length_window(
    client: ServeGenClient, arrivals_s: FloatArray
) -> Iterator[tuple[Lengths, int]]:
    """Count the arrivals of each length window: the latest that has started, else the first."""
    starts_s = np.array(list(client.lengths))
    index = np.maximum(np.searchsorted(starts_s, arrivals_s, side="right") - 1, 0)
    windows, counts = np.unique(index, return_counts=True)
    for window, requests in zip(windows.tolist(), counts.tolist(), strict=True):
        yield client.lengths[float(starts_s[window])], requests


def _draw(
    lengths: Lengths, requests: int, rng: np.random.Generator
) -> Iterator[tuple[int, int, int | None, Modal]]:
    """Draw prompt, output, reasoning and images of each request; an empty prompt or output becomes
    1.
    """
    prompt_rng, output_rng, part_rng = rng.spawn(3)
    prompt_law = lengths.get("input_tokens") or lengths["text_tokens"]
    prompts = _whole(prompt_law.sample(requests, prompt_rng))
    outputs = np.maximum(_whole(lengths["output_tokens"].sample(requests, output_rng)), 1)
    reasoning: list[int | None] = [None] * requests
    modal: list[Modal] = [None] * requests
    if ratio := lengths.get("reason_ratio"):
        reasoning = _whole(outputs * np.clip(ratio.sample(requests, part_rng), 0, 1)).tolist()
    if "image_count" in lengths and "image_tokens" in lengths:
        images, tokens = _images(lengths, requests, part_rng)
        pairs = zip(images.tolist(), tokens.tolist(), strict=True)
        modal = [{"images": n, "image_tokens": m} if n else None for n, m in pairs]
        prompts = prompts + tokens
    prompts = np.maximum(prompts, 1)
    return zip(prompts.tolist(), outputs.tolist(), reasoning, modal, strict=True)


def _images(lengths: Lengths, requests: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw the number of images of each request and their total tokens; the source has them per
    image.
    """
    images = _whole(lengths["image_count"].sample(requests, rng))
    if images.sum() > MOST_REQUESTS:
        raise TraceError(f"{images.sum():,} images; at most {MOST_REQUESTS:,} in a trace")
    each = _whole(lengths["image_tokens"].sample(int(images.sum()), rng))
    before = np.concatenate([[0], np.cumsum(each)])
    ends = np.cumsum(images)
    return images, before[ends] - before[ends - images]


def _whole(values: FloatArray) -> IntArray:
    return np.rint(values).astype(np.int64)
