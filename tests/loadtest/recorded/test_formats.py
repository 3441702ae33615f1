"""Every format gives the same three requests; what a format lacks is said."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from servetwin.loadtest.recorded.formats import FORMATS as KNOWN
from servetwin.loadtest.recorded.reading import read_recording
from servetwin.loadtest.recorded.recorded_run import TRACE, as_recorded_run, load_recorded_run
from servetwin.loadtest.recorded.recording import records_of
from servetwin.sim.records.run import Run, RunError, load_run
from servetwin.workloads.errors import TraceError
from servetwin.workloads.tables.mapping import parse_mapping
from tests.support import recorded_files as files
from tests.support.command import refused, servetwin
from tests.support.recorded_files import CSV_MAP, REQUESTS, vllm_bench

SGLANG = {"backend": "sglang-oai"}
FORMATS = {
    "vllm bench serve": (vllm_bench(), None, 1),
    "SGLang bench_serving": (vllm_bench(**SGLANG), None, 1),
    "AIPerf": (files.aiperf(), None, 1),
    "GuideLLM": (files.guidellm(), None, 1),
    "inference-perf": (files.inference_perf(), None, 1),
    "inference-perf, nested": (files.inference_perf(nested=True), None, 1),
    "stamps of the engine": (files.engine_stamps(), None, 0),
    "stamps of the engine, vLLM's names": (files.engine_stamps(theirs=True), None, 0),
    "OpenTelemetry spans": (files.otel_spans(), None, 1),
    "mapped columns": (files.csv(), CSV_MAP, 0),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_same_requests(name: str, tmp_path: Path) -> None:
    text, mapping, failed = FORMATS[name]
    path = tmp_path / "recorded"
    path.write_text(text)
    recording = read_recording(path, parse_mapping(mapping) if mapping else None)
    assert name.startswith(recording.tool)
    found = as_recorded_run(recording, "recorded")
    frame = found.run.requests
    assert (frame["status"] == "failed").sum() == failed
    finished = frame[frame["status"] == "finished"]
    assert finished["scheduled_s"].to_list() == pytest.approx([r.arrival_s for r in REQUESTS])
    assert finished["ttft_s"].to_list() == pytest.approx([r.ttft_s for r in REQUESTS], abs=1e-6)
    assert finished["e2e_s"].to_list() == pytest.approx([r.e2e_s for r in REQUESTS], abs=1e-6)
    expected = [sum(r.gaps_s) / (r.output - 1) for r in REQUESTS]
    assert finished["tpot_s"].to_list() == pytest.approx(expected, abs=1e-6)
    assert [(r.prompt_tokens, r.output_tokens) for r in found.trace] == [
        (r.prompt, r.output) for r in REQUESTS
    ]
    notes = " ".join(found.run.scenario["notes"])
    assert ("failed request" in notes) == bool(failed)
    chunks = [len(stamps) for stamps in finished["chunk_s"]]
    if "no stamps of single tokens" in notes:
        assert chunks == [0, 0, 0]
    else:
        assert chunks == [1 + len(r.gaps_s) for r in REQUESTS]


def test_stamps_of_the_engine_have_the_queue() -> None:
    found = KNOWN["engine_stamps"].read(records_of(files.engine_stamps()))
    assert [one.queue_s for one in found.requests] == [0.0625] * 3


def test_arrivals_of_the_clients_are_set_on_the_clock_of_the_engine() -> None:
    found = KNOWN["engine_stamps"].read(records_of(files.bench_requests()))
    assert [one.arrival_s for one in found.requests] == pytest.approx([50.0, 50.5, 51.25], abs=1e-6)
    assert [one.queue_s for one in found.requests] == pytest.approx([0.0, 0.1, 0.1], abs=1e-6)


def write_bench(folder: Path, dataset: Path, prompt: int = 200) -> Path:
    """Stamps and facts as LLMServingSim's bench writes them; the workload at ``dataset``."""
    folder.mkdir(parents=True)
    (folder / "requests.jsonl").write_text(files.bench_requests())
    (folder / "meta.json").write_text('{"dataset_path": "workloads/made.jsonl"}')
    dataset.parent.mkdir(parents=True, exist_ok=True)
    ids = [list(range(100)), [*range(48), *range(500, 500 + prompt - 48)], [7] * 50]
    prompts = [
        {"input_toks": len(one), "output_toks": 4, "arrival_time_ns": at, "input_tok_ids": one}
        for at, one in enumerate(ids)
    ]
    dataset.write_text("\n".join(map(json.dumps, prompts)))
    return folder / "requests.jsonl"


@pytest.mark.parametrize("place", ["workloads/made.jsonl", "examples/vllm/made.jsonl"])
def test_stamps_take_the_prompts_of_their_workload(tmp_path: Path, place: str) -> None:
    path = write_bench(tmp_path / "examples" / "vllm", tmp_path / place)
    first, second, third = as_recorded_run(read_recording(path), "recorded").trace
    assert first.prefix_block_ids[:3] == second.prefix_block_ids[:3]
    assert not {*first.prefix_block_ids[3:]} & {*second.prefix_block_ids}
    assert (len(second.prefix_block_ids), third.block_tokens) == (12, 16)


def test_another_workload_is_refused_and_a_missing_one_is_named(tmp_path: Path) -> None:
    path = write_bench(tmp_path / "vllm", tmp_path / "workloads" / "made.jsonl", prompt=180)
    with pytest.raises(TraceError, match=r"bench-1.* 200 prompt tokens, but .* has 180 tokens"):
        read_recording(path)
    (tmp_path / "workloads" / "made.jsonl").unlink()
    (note,) = [one for one in read_recording(path).notes if "workloads/made.jsonl" in one]
    assert "share no prefix" in note


def reason(tmp_path: Path, text: str, mapping: str | None = None) -> str:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(TraceError) as error:
        import_file(path, mapping)
    return str(error.value)


def import_file(path: Path, mapping: str | None) -> None:
    as_recorded_run(read_recording(path, parse_mapping(mapping) if mapping else None), path.name)


def changed(change: Callable[[dict[str, object]], object]) -> str:
    records = [json.loads(line) for line in files.engine_stamps().splitlines()]
    change(records[1])
    return "\n".join(map(json.dumps, records))


def in_ms(report: str) -> str:
    return re.sub(r"17000000\d\d\.\d+", lambda stamp: str(1000 * float(stamp[0])), report)


@pytest.mark.parametrize(
    ("text", "mapping", "says"),
    [
        ("", None, "empty; a recorded run has at least one request"),
        ("a,b\n1,2\n", None, "the columns are a, b): give --map arrival_s=COLUMN"),
        ('{"a": 1}', None, "no known format of a recorded run"),
        ('{"a": 1}\nnot json', None, "field 'line 2': not a JSON object"),
        (vllm_bench(start_times=...), None, "4 of 4 requests have no arrival time"),
        (vllm_bench(start_times=...), None, "'start_times' is missing and the request rate"),
        (vllm_bench(itls=...), None, "field 'itls': missing: the result has no details"),
        (vllm_bench(ttfts=[0.1]), None, "field 'ttfts': 1 entries, but input_lens has 4"),
        (vllm_bench() + "\n" + vllm_bench(), None, "a second result; keep one of the 2 lines"),
        (
            changed(lambda r: r.update(first_token_s=0.25)),
            None,
            "field 'request 1.first token stamp': 0.25 s before the arrival",
        ),
        (
            changed(lambda r: r.update(last_token_s=0.75)),
            None,
            "field 'request 1.last token stamp': 0.25 s before the first token",
        ),
        (changed(lambda r: r.update(output_tokens=0)), None, "0 in a request without an error"),
        (
            changed(lambda r: r.update(prompt_tokens="x")),
            None,
            "'line 2.prompt_tokens': not a number",
        ),
        (changed(lambda r: r.pop("arrival_s")), None, "1 of 3 requests have no arrival time"),
        (
            files.csv().replace(",in,", ",x,"),
            "arrival_s=ts,output_tokens=out",
            "--map: the tokens or the text of the prompt missing; 'prompt_tokens=x,",
        ),
        (files.csv(), CSV_MAP.replace("=ts", "=when"), "arrival_s: no column 'when'"),
        (files.csv(), CSV_MAP.replace("ttft_ms", "ttft_m"), "unknown quantity 'ttft_m'; did you"),
        (files.csv().replace(",100,", ",ten,"), CSV_MAP, ":2: field 'in': not an integer"),
        (files.csv().replace("10:00:00", "noon"), CSV_MAP, ":2: field 'ts': no time: wants"),
        (
            files.csv().replace(",100,", ",100,7,"),
            CSV_MAP,
            ":2: field 'row': the row has 6 cells where the header has 5",
        ),
        (
            files.csv().replace(",100,", ",1\r0,"),
            CSV_MAP,
            ":2: field 'row': not CSV: new-line character",
        ),
        (
            files.csv().replace(",100,", ",3000000000,"),
            CSV_MAP,
            ":2: field 'in': beyond 2147483647",
        ),
        (in_ms(files.guidellm()), None, "arrival stamp': beyond 10,000,000,000 s: in ms or us?"),
        (
            re.sub(r'{"value": (250.0), "unit": "ms"}', r"\1", files.aiperf()),
            None,
            "metrics.time_to_first_token': without a unit (250.0)",
        ),
        ('{"resourceSpans": 1}', None, "'resourceSpans': not a list"),
        ('{"resourceSpans": [1]}', None, "'resourceSpans[0]': not a JSON object"),
        (
            files.otel_spans().replace('"status": {', '"status": 1, "x": {'),
            None,
            "status': not a JSON",
        ),
        ('{"benchmarks": [1]}', None, "no known format of a recorded run"),
        ('{"benchmarks": [{"requests": 1}]}', None, "'benchmarks[0].requests': not a JSON object"),
        ('{"start_time": 1, "end_time": 2, "info": [1]}', None, "info': not a JSON object"),
        ('{"metadata": {"request_start_ns": 1}, "metrics": [1]}', None, "metrics': not a JSON"),
        (vllm_bench(errors=7), None, "'errors': not a list"),
        (vllm_bench(start_times="now"), None, "'start_times': not a list"),
        (changed(lambda r: r.update(arrival_s=10**400)), None, "'line 2.arrival_s': not a number"),
        (changed(lambda r: r.update(arrival_s="nan")), None, "'line 2.arrival_s': not a number"),
        (changed(lambda r: r.update(request_id="\ud800")), None, "half of a surrogate pair"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(
    tmp_path: Path, text: str, mapping: str | None, says: str
) -> None:
    message = reason(tmp_path, text, mapping)
    assert says in message
    assert "\n" not in message


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "stamps.jsonl"
    path.write_bytes(files.engine_stamps().encode() + b"\xd3\n")
    with pytest.raises(TraceError, match=r"stamps.jsonl: field 'line 3': not UTF-8"):
        read_recording(path)


def test_all_at_once_is_no_guess_where_the_tool_says_so(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(vllm_bench(start_times=..., request_rate="inf"))
    found = as_recorded_run(read_recording(path), "result")
    assert np.all(found.run.requests["scheduled_s"] == 0)
    assert "all requests were sent at once (request_rate inf)" in found.run.scenario["notes"]
    path.write_text(vllm_bench(start_times=..., request_rate="inf", max_concurrency=4))
    with pytest.raises(TraceError, match="no arrival time"):
        as_recorded_run(read_recording(path), "result")


def test_a_report_of_several_rates_is_refused(tmp_path: Path) -> None:
    report = json.loads(files.guidellm())
    report["benchmarks"] *= 3
    assert "3 of them; run GuideLLM with one rate" in reason(tmp_path, json.dumps(report))


@pytest.mark.parametrize("more", [{"status": "ok", "error": None}, {"status": "ok"}, {}])
def test_a_log_of_a_gateway_is_a_table(more: dict[str, object], tmp_path: Path) -> None:
    told = {"prompt_tokens": 5, "completion_tokens": 4, "ttft_ms": 125, "latency_ms": 750}
    rows = ({"timestamp": f"2026-02-02T00:00:0{at}Z", **told, **more} for at in (1, 4))
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    frame = as_recorded_run(read_recording(path), "log").run.requests
    assert frame["scheduled_s"].to_list() == [0.0, 3.0]
    assert frame["ttft_s"].to_list() == [0.125] * 2
    assert frame["e2e_s"].to_list() == [0.75] * 2


def test_gzipped_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "stamps.jsonl.gz"
    path.write_bytes(gzip.compress(files.engine_stamps().encode()))
    assert len(read_recording(path).requests) == 3


def test_aiperf_says_what_the_prefix_cache_found(tmp_path: Path) -> None:
    path = tmp_path / "profile_export.jsonl"
    path.write_text(files.aiperf())
    found = [one.cached_tokens for one in read_recording(path).requests if one.error is None]
    assert found == list(range(len(found)))
    path.write_text(files.aiperf().replace("usage_prompt_cache_read_tokens", "other"))
    assert {one.cached_tokens for one in read_recording(path).requests} == {None}


@pytest.fixture
def stamps(tmp_path: Path) -> Path:
    path = tmp_path / "measured.jsonl"
    records = [json.loads(line) for line in files.engine_stamps().splitlines()]
    records[0] |= {"prefix_block_ids": [7, 8, 9], "block_tokens": 32}
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_a_folder_keeps_run_and_trace(stamps: Path, tmp_path: Path) -> None:
    recorded = as_recorded_run(read_recording(stamps), "measured")
    recorded.save(tmp_path / "run")
    again = load_recorded_run(tmp_path / "run")
    assert again.trace.requests == recorded.trace.requests
    assert again.trace.requests[0].prefix_block_ids == (7, 8, 9)
    assert again.run.summary()["ttft_s"] == recorded.run.summary()["ttft_s"]
    assert load_run(tmp_path / "run").scenario["recorded_by"] == "stamps of the engine"


def test_a_load_test_of_ours_is_a_recorded_run_too(stamps: Path, tmp_path: Path) -> None:
    as_recorded_run(read_recording(stamps), "measured").save(tmp_path / "run")
    (tmp_path / "run" / TRACE).unlink()
    found = load_recorded_run(tmp_path / "run").trace
    assert [(r.prompt_tokens, r.output_tokens) for r in found] == [(100, 4), (200, 3), (50, 2)]


def test_a_simulation_is_no_recorded_run(stamps: Path, tmp_path: Path) -> None:
    measured = as_recorded_run(read_recording(stamps), "measured").run
    Run("simulation", measured.requests, measured.steps, {}).save(tmp_path / "sim")
    with pytest.raises(RunError, match="a simulation; a recorded run was measured"):
        load_recorded_run(tmp_path / "sim")


def test_import_prints_the_latencies_and_what_lacks(stamps: Path, tmp_path: Path) -> None:
    done = servetwin("loadtest", "import", stamps, "--out", tmp_path / "run")
    assert (done.code, done.err) == (0, "")
    assert "measured.jsonl: stamps of the engine" in done.out
    assert "note: stamps inside the engine: no HTTP latency" in done.out
    assert "3 requests: 3 finished" in done.out
    again = ("--out", tmp_path / "run", "--overwrite")
    as_json = json.loads(servetwin("loadtest", "import", stamps, *again, "--json").out)
    assert as_json["ttft_s"]["mean"] == pytest.approx((0.25 + 0.5 + 0.125) / 3)


def test_import_maps_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(files.csv())
    done = servetwin(
        "loadtest", "import", path, "--map", files.CSV_MAP, "--out", tmp_path / "run", "--json"
    )
    assert json.loads(done.out)["e2e_s"]["mean"] == pytest.approx((0.75 + 1.0 + 0.1875) / 3)


def test_import_refuses_a_missing_file(tmp_path: Path) -> None:
    line = refused("loadtest", "import", tmp_path / "nowhere", "--out", tmp_path / "run")
    assert line.endswith("no such file")
