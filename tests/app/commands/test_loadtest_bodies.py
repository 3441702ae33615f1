"""Load tests with other bodies, against the mock: whole answers, embeddings, images, LoRA mixes."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from servetwin.sim.records.run import load_run
from servetwin.workloads.reading import read_trace
from tests.support.command import SERVER, refused, servetwin
from tests.support.dialect_servers import Kind, kinds, models, running
from tests.support.mock_endpoint import mocked, plan

LOAD = ("--arrivals", "constant", "--rate", 100, "--limit", 40, "--output-tokens", 3)


@pytest.fixture
def url() -> Iterator[str]:
    with mocked(plan(ttft_ms=5, itl_ms=1, lora_modules=("sql", "chat"))) as (server,):
        yield server.url


def test_whole_answers_have_an_end_and_no_first_token(url: str, tmp_path: Path) -> None:
    done = servetwin("loadtest", url, *LOAD, "--no-stream", "--out", tmp_path)
    assert done.code == 0, done.err
    assert "answers were not streamed (--no-stream): TTFT, TPOT and chunk gaps are" in done.out
    run = load_run(tmp_path)
    rows, summary = run.requests, run.summary()
    assert (rows["status"] == "finished").all()
    assert rows["output_tokens"].tolist() == [3] * 40
    assert rows[["first_token_s", "ttft_s", "tpot_s"]].isna().all(axis=None)
    assert summary["e2e_s"]["count"] == 40
    assert summary["ttft_s"]["count"] == summary["tpot_s"]["count"] == 0
    assert run.extra["delivered"]["token_doubts"] == []


def test_embeddings_are_requests_without_tokens_out(url: str, tmp_path: Path) -> None:
    done = servetwin("loadtest", url, *LOAD, "--api", "embeddings", "--out", tmp_path)
    assert done.code == 0, done.err
    assert f"endpoint: {url}/v1/embeddings" in done.err
    assert "no outputs" in done.err
    assert "embeddings have no tokens out: TTFT and TPOT are undefined" in done.out
    run = load_run(tmp_path)
    assert (run.requests["status"] == "finished").all()
    assert set(run.requests["output_tokens"]) == set(run.requests["asked_output_tokens"]) == {0}
    assert run.extra["delivered"]["token_doubts"] == []
    assert "fewer tokens than in the trace" not in done.out
    kept = read_trace(tmp_path / "trace.jsonl")
    assert [r.output_tokens for r in kept] == [1] * 40
    assert servetwin("replay", tmp_path / "trace.jsonl", *SERVER).code == 0


def test_models_are_drawn_and_stamped_in_the_records(url: str, tmp_path: Path) -> None:
    found = []
    for processes in (1, 2):
        done = servetwin(
            "loadtest", url, *LOAD, "--lora-modules", "sql=0.4,chat=0.3", "--seed", 3,
            "--processes", processes, "--out", tmp_path / str(processes),
        )  # fmt: skip
        assert done.code == 0, done.err
        assert "requests by model: " in done.out
        found.append(load_run(tmp_path / str(processes)).requests.set_index("request_id")["model"])
    assert (found[0].sort_index() == found[1].sort_index()).all()
    assert set(found[0]) == {"mock", "sql", "chat"}


def test_a_run_without_a_mix_has_its_one_model(url: str, tmp_path: Path) -> None:
    assert servetwin("loadtest", url, *LOAD, "--out", tmp_path).code == 0
    assert set(load_run(tmp_path).requests["model"]) == {"mock"}


def test_images_are_sent_to_the_chat_api(tmp_path: Path) -> None:
    server = Kind(models("vllm"), {"/v1/chat/completions": _answers_parts})
    with running(server) as url:
        done = servetwin(
            "loadtest", url, *LOAD, "--limit", 3, "--image", "32x16,2", "--out", tmp_path
        )
    assert done.code == 0, done.err
    sent = [body["messages"][0]["content"] for _, body in server.asked]
    assert [[part["type"] for part in parts] for parts in sent] == [
        ["text", "image_url", "image_url"]
    ] * 3
    urls = {part["image_url"]["url"] for parts in sent for part in parts[1:]}
    assert len(urls) == 6, "no two images are alike, which a server could have cached"


def test_the_mock_takes_images(url: str, tmp_path: Path) -> None:
    for image in ("16x16", "http://example.com/cat.png,2"):
        done = servetwin("loadtest", url, *LOAD, "--image", image, "--overwrite", "--out", tmp_path)
        assert done.code == 0, done.err
        assert "40 requests: 40 finished" in done.out


def test_sampling_and_further_fields_are_in_every_body(tmp_path: Path) -> None:
    server = kinds()["vllm"]
    with running(server) as url:
        done = servetwin(
            "loadtest", url, *LOAD, "--limit", 3, "--out", tmp_path,
            "--sampling", "temperature=0.5,seed=4", "--extra-body", '{"user": "u", "top_p": 0.5}',
        )  # fmt: skip
    assert done.code == 0, done.err
    for _, body in server.asked:
        names = ("temperature", "seed", "user", "top_p")
        assert [body[name] for name in names] == [0.5, 4, "u", 0.5]
    kept = load_run(tmp_path).scenario["endpoint"]["options"]
    assert kept["sampling"] == {"temperature": 0.5, "seed": 4}
    assert kept["extra"] == {"user": "u", "top_p": 0.5}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--extra-body", "{"], "--extra-body: not JSON"),
        (["--sampling", "heat=1"], "--sampling: unknown 'heat'"),
        (["--lora-modules", "x=0.5"], "--lora-modules x: not served there; it serves mock, sql,"),
        (["--lora-modules", ""], "--lora-modules '': no module"),
        (["--image", "big"], "--image 'big': neither a size nor a URL"),
        (["--image", "8x8", "--api", "completions"], "--image and --api completions: images are"),
        (["--no-stream", "--slo", "ttft=1s"], "--slo and --no-stream: TTFT and TPOT are undefined"),
        (["--no-stream", "--cancel", "share=0.1,after=2tokens"], "--cancel and --no-stream"),
        (["--api", "embeddings", "--sampling", "seed=1"], "--sampling and --api embeddings"),
    ],
)
def test_what_does_not_fit_is_one_line(
    url: str, options: list[str], said: str, tmp_path: Path
) -> None:
    assert said in refused("loadtest", url, *LOAD, "--out", tmp_path / "run", *options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["verify", "calibrate"])
def test_what_times_tokens_takes_no_embeddings(command: str) -> None:
    line = refused(command, "--url", "http://127.0.0.1:9", "--api", "embeddings")
    assert "--api embeddings: has no tokens to time; only servetwin loadtest sends it" in line


def test_runs_with_other_bodies_are_compared_and_no_gate_passes_them(
    url: str, tmp_path: Path
) -> None:
    for name, options in (("a", []), ("b", ["--no-stream"]), ("c", ["--sampling", "top_k=2"])):
        assert servetwin("loadtest", url, *LOAD, *options, "--out", tmp_path / name).code == 0
    line = refused("compare", tmp_path / "a", tmp_path / "b", "--gate")
    assert "whole answers True, but none in" in line
    line = refused("compare", tmp_path / "a", tmp_path / "c", "--gate")
    assert "sampling {'top_k': 2}, but none in" in line
    done = servetwin("compare", tmp_path / "a", tmp_path / "b")
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "Note: the endpoints were asked otherwise:" in said
    assert "whole answers True, but none in" in said
    shown = {line[:18].rstrip(): line for line in done.out.splitlines()}
    assert "-" in shown["TTFT mean"].split(), "undefined without a stream"
    other = servetwin("compare", tmp_path / "a", tmp_path / "c", "--json")
    found = json.loads(other.out)
    assert len(found["differences"]) == 1
    assert "sampling" in found["differences"][0]
    (ttft,) = (row for row in found["metrics"] if row["metric"] == "ttft_s.mean")
    assert ttft["low"] < ttft["change"] < ttft["high"]


def _answers_parts(body: Mapping[str, Any]) -> list[bytes]:
    tokens = [{"choices": [{"index": 0, "delta": {"content": "w"}}]}] * int(body["max_tokens"])
    last = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": len(tokens)},
    }
    return [f"data: {json.dumps(event)}\n\n".encode() for event in (*tokens, last)]
