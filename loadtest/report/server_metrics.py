"""Gauges and counters of the server during a load test, scraped from ``GET /metrics``.

A thread scrapes once per interval and keeps the known lines as bytes: they are parsed after the
load test, since parsing would take the interpreter from the client's event loop. Stamps are
``time.perf_counter_ns`` when an answer came, on the clock of the requests.

Gauges are summed over their labels (models, engines, ranks); shares of memory are averaged. The
names are those of vLLM (and of our engine, which uses the same), SGLang
(``--enable-metrics``), text-generation-inference (which has no gauge of its KV memory),
llama.cpp's server (``--metrics``), and of the exporters of GPUs: NVIDIA's DCGM and AMD's.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import httpx
import numpy as np
import pandas as pd

from servetwin.loadtest.endpoint import client_settings, server_url
from servetwin.loadtest.redaction import redact
from servetwin.loadtest.report.load_notes import CacheCounts
from servetwin.loadtest.report.records import MEANINGS
from servetwin.sim.records.run import Run, RunError, write_files
from servetwin.workloads.errors import os_errors
from servetwin.workloads.program.package import shipped_json

FILE_NAME = "server_metrics.parquet"
SERVER_MEANINGS = MEANINGS["server_metrics"]
# The columns of ``server_metrics.parquet``, one row per reading.
COLUMNS = tuple(SERVER_MEANINGS)
_NAMES: dict[str, dict[str, list[str]]] = shipped_json("loadtest/report/server_metrics.json")
# The names of each gauge by server, the preferred first; ``kv_usage`` is a share of 1, and
# ``preemptions`` counts, though SGLang calls it a gauge.
GAUGES = _NAMES["gauges"]
# The counters of the server's prefix cache, in prompt tokens.
COUNTERS = _NAMES["counters"]
_KNOWN = tuple(name.encode() for names in (*GAUGES.values(), *COUNTERS.values()) for name in names)
# When an answer came, and its known lines.
_Scrape = tuple[int, bytes]
_EXPORTER = "--gpu-metrics takes an exporter's page, such as http://127.0.0.1:9400/metrics"
_ANSWER_S = 2.0
_STOP_S = 1.0


class ServerWatch:
    """Scrapes a server while a block runs; ``url`` is what it scrapes.

    ``base_url`` is with or without ``/v1``; ``gpus`` is the page of an exporter. At the end it
    waits at most a second for an answer that is late. Without prometheus-client nothing is scraped.
    """

    def __init__(
        self, base_url: str, every_s: float = 1.0, *, insecure: bool = False,
        gpus: str | None = None,
    ) -> None:  # fmt: skip
        self.url = base_url.rstrip("/").removesuffix("/v1") + "/metrics"
        self._settings = client_settings(base_url, insecure=insecure)
        self._every_s = every_s
        self._gpus = None if gpus is None else str(server_url(gpus, _EXPORTER))
        self._scrapes: list[_Scrape] = []
        self._last: _Scrape | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._scrape_until_stopped, daemon=True)
        # Why there are no gauges, or None.
        self.reason: str | None = None
        # Why there are none of GPUs.
        self.gpus_reason = "no known gauge there"

    def __enter__(self) -> Self:
        if find_spec("prometheus_client") is None:
            self.reason = "prometheus-client is not installed: pip install prometheus-client"
        else:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def frame(self, zero_ns: int) -> pd.DataFrame:
        """Return ``COLUMNS``: seconds after ``zero_ns``, and each gauge or NaN."""
        rows = []
        for at_ns, lines in list(self._scrapes):
            if figures := read_figures(lines, {**GAUGES, **COUNTERS}):
                rows.append({"at_s": (at_ns - zero_ns) / 1e9, **figures})
        return pd.DataFrame(rows, columns=list(COLUMNS), dtype=float)

    def cache_counts(self) -> CacheCounts | None:
        """Return what the server looked up in its prefix cache meanwhile; None where unknown."""
        if not self._scrapes:
            return None
        ends = (self._scrapes[0], self._last or self._scrapes[-1])
        before, after = (read_figures(lines, COUNTERS) for _, lines in ends)
        if before.keys() & after.keys() < COUNTERS.keys():
            return None
        counts = CacheCounts(**{name: round(after[name] - before[name]) for name in COUNTERS})
        return counts if min(counts) >= 0 else None  # else the server was started again

    def power(self, frame: pd.DataFrame, run: Run) -> Iterator[str]:
        """Yield the mean watts of the GPUs and joules per output token, or why there are none."""
        if self._gpus is None:
            return
        if not (watts := frame["watts"].dropna()).size:
            yield f"no watts ({self._gpus}: {self.gpus_reason})"
            return
        rows, tokens = run.requests, run.requests["output_tokens"].sum()
        lasted_s = rows["last_token_s"].max() - rows["scheduled_s"].min()
        each = f", {watts.mean() * lasted_s / tokens:.3g} J per output token" if tokens else ""
        yield f"GPUs {watts.mean():,.0f} W in the mean{each}"

    def _scrape_until_stopped(self) -> None:
        with httpx.Client(timeout=_ANSWER_S, **self._settings) as client:
            while not self._stopped.is_set():
                if scrape := self._scrape(client):
                    self._scrapes.append(scrape)
                if self.reason and not self._scrapes:
                    return  # A server without metrics is not scraped again.
                self._stopped.wait(self._every_s)
            self._last = self._scrape(client)

    def _scrape(self, client: httpx.Client) -> "_Scrape | None":
        try:
            answer = client.get(self.url)
        except httpx.HTTPError as error:
            self.reason = redact(str(error)) or type(error).__name__
            return None
        of_gpus: list[bytes] = []
        try:
            of_gpus = _known_lines(client.get(self._gpus)) if self._gpus else []
        except httpx.HTTPError as error:
            self.gpus_reason = redact(str(error)) or type(error).__name__
        lines = _known_lines(answer) + of_gpus
        if answer.status_code != 200 and not lines:
            self.reason = f"answered {answer.status_code}"
        elif not lines:
            self.reason = "no known gauge there"
        else:
            self.reason = None
            return time.perf_counter_ns(), b"\n".join(lines)
        return None


def _known_lines(answer: httpx.Response) -> list[bytes]:
    """Return the lines of a page that have a known name; none of an answer other than 200."""
    if answer.status_code != 200:
        return []
    return [line for line in answer.content.splitlines() if line.startswith(_KNOWN)]


def read_figures(page: bytes, names_by_figure: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return each known figure of a page in Prometheus' format; none where it cannot be read.

    It is summed over its labels; a share is averaged, and one in percent divided by 100.
    """
    values = _samples(page.decode(errors="replace"))
    figures = {}
    for figure, names in names_by_figure.items():
        if samples := next((values[name] for name in names if name in values), None):
            mean, total = float(np.mean(samples)), float(np.sum(samples))
            figures[figure] = {"kv_usage": mean, "gpu_use": mean / 100}.get(figure, total)
    return figures


def _samples(text: str) -> dict[str, list[float]]:
    """Return the values of each name in a text of Prometheus; none where it cannot be read."""
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, list[float]] = {}
    try:
        for family in text_string_to_metric_families(f"{text}\n"):
            for sample in family.samples:
                values.setdefault(sample.name, []).append(sample.value)
    except ValueError:
        return {}
    return values


def save_server_metrics(watch: ServerWatch, run: Run, folder: Path) -> str:
    """Write what was scraped during ``run`` into its folder, and return a line about it.

    Raises ``RunError`` where the folder cannot be written.
    """
    zero_ns = round(run.meta["clock_zero_perf_counter_s"] * 1e9)
    frame = watch.frame(zero_ns)
    data = None if frame.empty else frame.to_parquet(index=False)
    # The old file goes first: it would pass for one of the new run.
    write_files(folder, [(FILE_NAME, None)])
    for lost in write_files(folder, [(FILE_NAME, data)]):
        raise RunError(f"{folder / FILE_NAME}: cannot be written ({lost.reason})")
    names = {"kv_usage": "KV usage", "gpu_use": "GPU use"}
    known = ", ".join(names.get(c, c) for c in GAUGES if frame[c].notna().any())
    line = f"server metrics: {known}, {len(frame)} times from {watch.url}"
    if frame.empty:
        line = f"server metrics: none ({watch.url}: {watch.reason or 'no answer in time'})"
    return "; ".join([line, *watch.power(frame, run)])


def load_server_metrics(folder: Path) -> pd.DataFrame | None:
    """Return what was scraped during the run of a folder; None where nothing was.

    Raises ``RunError`` for a damaged file.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return None
    with os_errors(RunError, f"{path}: not readable", ValueError, KeyError):
        frame = pd.read_parquet(path).set_index("at_s")  # a file of before has fewer columns
        return frame.reindex(columns=list(COLUMNS[1:])).reset_index()
