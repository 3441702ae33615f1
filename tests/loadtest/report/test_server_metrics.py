"""Server metrics: every known server's page is read; no metrics is a reason, never an error."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("prometheus_client", reason="server metrics need prometheus-client")

from servetwin.loadtest.report.server_metrics import (
    COLUMNS,
    FILE_NAME,
    GAUGES,
    ServerWatch,
    load_server_metrics,
    read_figures,
    save_server_metrics,
)
from servetwin.sim.records.run import RunError
from servetwin.workloads.errors import LoadTestError
from tests.support.figure_frames import load_test

VLLM = """\
# HELP vllm:num_requests_running Requests in the batch.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.9
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 5.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{model_name="m"} 99.0
"""
PAGES = {
    "vllm": (VLLM, {"running": 7, "waiting": 2, "kv_usage": 0.5, "preemptions": 5}),
    "old vllm": (
        "vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.125\n",
        {"running": 1, "kv_usage": 0.125},
    ),
    "sglang": (
        'sglang:num_running_reqs{model_name="m"} 5\nsglang:num_queue_reqs{model_name="m"} 6\n'
        'sglang:token_usage{model_name="m"} 0.28\nsglang:num_retracted_reqs{model_name="m"} 4\n',
        {"running": 5, "waiting": 6, "kv_usage": 0.28, "preemptions": 4},
    ),
    "tgi": (
        "# TYPE tgi_queue_size gauge\ntgi_queue_size 4\n# TYPE tgi_batch_current_size gauge\n"
        "tgi_batch_current_size 9\ntgi_batch_current_max_tokens 4096\n",
        {"running": 9, "waiting": 4},
    ),
    "llama.cpp": (
        "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n",
        {"running": 2, "waiting": 1},
    ),
    "crlf": ("vllm:num_requests_running 1\r\nvllm:num_requests_waiting 0\r\n", {"running": 1,
             "waiting": 0}),
    "another server": ("process_cpu_seconds_total 12\n", {}),
    "nothing": ("", {}),
    "garbage": ("vllm:num_requests_running{ 1\n", {}),
    "a web page": ("<!DOCTYPE html><p>hello</p>\n", {}),
}  # fmt: skip


@pytest.mark.parametrize("server", PAGES)
def test_the_gauges_of_every_known_server_are_read(server: str) -> None:
    page, gauges = PAGES[server]
    assert read_figures("\n".join(page.splitlines()).encode(), GAUGES) == pytest.approx(gauges)


def test_our_own_engine_is_read() -> None:
    metrics = pytest.importorskip("servetwin.engine.core.metrics")
    page = metrics.Metrics("base").exposition()
    assert read_figures(page, GAUGES) == {
        "running": 0,
        "waiting": 0,
        "kv_usage": 0,
        "preemptions": 0,
    }


@contextmanager
def serving(*answers: tuple[int, str], delay_s: float = 0.0) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these answers in turn; its base URL, and the paths it was asked for."""
    turns, asked = cycle(answers), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, page = next(turns)
            time.sleep(delay_s)
            with suppress(OSError):  # the client may have hung up
                self.send_response(status)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def until(asked: list[str], times: int) -> None:
    deadline = time.monotonic() + 10
    while len(asked) < times:
        assert time.monotonic() < deadline, "the server was not asked"
        time.sleep(0.002)


def test_a_run_keeps_what_its_server_said(tmp_path: Path) -> None:
    hits = "vllm:prefix_cache_hits_total"
    pages = [(200, f"vllm:num_requests_running {n}\n{hits} {16 * n}\n") for n in (1, 2, 3)]
    before_ns = time.perf_counter_ns()
    with serving(*pages) as (url, asked), ServerWatch(url, every_s=0.01) as watch:
        until(asked, 5)
    run = load_test()
    run.meta["clock_zero_perf_counter_s"] = before_ns / 1e9
    said = save_server_metrics(watch, run, run.save(tmp_path))
    found = load_server_metrics(tmp_path)
    assert found is not None
    assert tuple(found.columns) == COLUMNS
    assert found["running"].tolist()[:4] == [1, 2, 3, 1]
    assert found["found"].tolist()[:4] == [16, 32, 48, 16]
    assert found["waiting"].isna().all()
    assert found["at_s"].iloc[0] > 0
    assert (np.diff(found["at_s"]) > 0.005).all()
    assert said == f"server metrics: running, {len(found)} times from {watch.url}"
    assert set(asked) == {"/metrics"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, "vllm:num_requests_running 1\n"), "answered 404"),
        ((401, "no"), "answered 401"),
        ((200, "<html>"), "no known gauge there"),
    ],
)
def test_a_server_without_metrics_is_asked_once(
    answer: tuple[int, str], reason: str, tmp_path: Path
) -> None:
    with serving(answer) as (url, asked), ServerWatch(url, every_s=0.01) as watch:
        until(asked, 1)
        time.sleep(0.1)
    assert len(asked) == 1
    said = save_server_metrics(watch, load_test(), tmp_path)
    assert said == f"server metrics: none ({watch.url}: {reason})"
    assert load_server_metrics(tmp_path) is None


DCGM = """\
DCGM_FI_DEV_POWER_USAGE{gpu="0",modelName="H100"} 400.5
DCGM_FI_DEV_POWER_USAGE{gpu="1",modelName="H100"} 199.5
DCGM_FI_DEV_GPU_UTIL{gpu="0"} 100
DCGM_FI_DEV_GPU_UTIL{gpu="1"} 50
DCGM_FI_DEV_SM_CLOCK{gpu="0"} 1980
"""


@pytest.mark.parametrize("server", [(200, "vllm:num_requests_running 1\n"), (404, "")])
def test_watts_of_an_exporter_become_joules_per_token(
    server: tuple[int, str], tmp_path: Path
) -> None:
    with (
        serving(server) as (url, _),
        serving((200, DCGM)) as (gpus, asked),
        ServerWatch(url, every_s=0.01, gpus=f"{gpus}/metrics") as watch,
    ):
        until(asked, 3)
    run = load_test()
    said = save_server_metrics(watch, run, run.save(tmp_path))
    frame = load_server_metrics(tmp_path)
    assert frame is not None
    assert (set(frame["watts"]), set(frame["gpu_use"])) == ({600.0}, {0.75})
    rows = run.requests
    lasted_s = rows["last_token_s"].max() - rows["scheduled_s"].min()
    joules = 600 * lasted_s / rows["output_tokens"].sum()
    assert said.endswith(f"; GPUs 600 W in the mean, {joules:.3g} J per output token")


@pytest.mark.parametrize("server", [(200, "vllm:num_requests_running 1\n"), (404, "")])
def test_an_exporter_that_does_not_answer_is_named(server: tuple[int, str], tmp_path: Path) -> None:
    with (
        serving(server) as (url, asked),
        ServerWatch(url, every_s=0.01, gpus="http://127.0.0.1:9/metrics") as watch,
    ):
        until(asked, 1)
    said = save_server_metrics(watch, load_test(), tmp_path)
    assert "; no watts (http://127.0.0.1:9/metrics: " in said


@pytest.mark.parametrize("url", ["", "ftp://10.0.0.1/metrics", "http://me:secret@10.0.0.1"])
def test_an_exporter_without_a_url_is_refused_before_the_load(url: str) -> None:
    with pytest.raises(LoadTestError, match=r"--gpu-metrics takes|password"):
        ServerWatch("http://127.0.0.1:9", gpus=url)


def test_a_pause_of_the_metrics_leaves_a_gap_only() -> None:
    page = "vllm:num_requests_running 1\n"
    with (
        serving((200, page), (503, ""), (200, page)) as (url, asked),
        ServerWatch(url, every_s=0.01) as watch,
    ):
        until(asked, 7)
    assert len(watch.frame(0)) >= 4


COUNTED = {
    "vllm": ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
    "older vllm": ("vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_hits_total"),
    "sglang": ("sglang:prompt_tokens_total", "sglang:cached_tokens_total"),
}


@pytest.mark.parametrize("server", COUNTED)
def test_the_prefix_cache_is_counted_from_the_first_answer_to_one_after_the_load(
    server: str,
) -> None:
    looked_up, found = COUNTED[server]
    pages = [
        (200, f'{looked_up}{{e="0"}} {n}00\n{looked_up}{{e="1"}} 5\n{found} {n}0\n')
        for n in range(1, 9)
    ]
    with serving(*pages) as (url, asked):
        with ServerWatch(url, every_s=30) as watch:
            until(asked, 1)
        until(asked, 2)
        assert watch.cache_counts() == (100, 10)


@pytest.mark.parametrize(
    "pages",
    [
        [],
        ["vllm:num_requests_running 1\n"] * 2,
        ["vllm:prefix_cache_queries_total 9\n"] * 2,
        [f"{COUNTED['vllm'][0]} {n}\n{COUNTED['vllm'][1]} {n}\n" for n in (9, 1)],
    ],
    ids=["no answer", "no counters", "one counter", "the server was started again"],
)
def test_without_counters_nothing_is_known_of_the_prefix_cache(pages: list[str]) -> None:
    with serving(*[(200, page) for page in pages] or [(404, "")]) as (url, asked):
        with ServerWatch(url, every_s=30) as watch:
            until(asked, 1)
        assert watch.cache_counts() is None


def test_our_own_engine_counts_its_prefix_cache() -> None:
    metrics = pytest.importorskip("servetwin.engine.core.metrics")
    page = metrics.Metrics("base").exposition().decode()
    with serving((200, page)) as (url, asked):
        with ServerWatch(url) as watch:
            until(asked, 1)
        assert watch.cache_counts() == (0, 0)


def test_nobody_there_is_a_reason() -> None:
    with ServerWatch("http://127.0.0.1:9/v1", every_s=0.01) as watch:
        deadline = time.monotonic() + 10
        while watch.reason is None and time.monotonic() < deadline:
            time.sleep(0.002)
    assert watch.reason
    assert watch.frame(0).empty


def test_a_late_answer_is_not_waited_for() -> None:
    with serving((200, "vllm:num_requests_running 1\n"), delay_s=4) as (url, asked):
        with ServerWatch(url) as watch:
            until(asked, 1)
            started_s = time.monotonic()
        assert time.monotonic() - started_s < 3
        assert watch.frame(0).empty


def test_without_a_parser_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servetwin.loadtest.report.server_metrics.find_spec", lambda name: None)
    with (
        serving((200, "vllm:num_requests_running 1\n")) as (url, asked),
        ServerWatch(url, every_s=0.01) as watch,
    ):
        time.sleep(0.05)
    assert asked == []
    assert watch.reason == "prometheus-client is not installed: pip install prometheus-client"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("not parquet")
    with pytest.raises(RunError, match=FILE_NAME):
        load_server_metrics(tmp_path)
    pd.DataFrame({"running": [1.0]}).to_parquet(tmp_path / FILE_NAME)
    with pytest.raises(RunError, match=FILE_NAME):
        load_server_metrics(tmp_path)
    pd.DataFrame({"at_s": [1.0], "running": [2.0]}).to_parquet(tmp_path / FILE_NAME)
    older = load_server_metrics(tmp_path)
    assert older is not None
    assert older.dropna(axis=1).to_dict("records") == [{"at_s": 1.0, "running": 2.0}]
