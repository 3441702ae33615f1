"""Real prompts from files: what ``servetwin loadtest`` sends of them, and what it refuses."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from servetwin.engine.http.engine_server import EngineServer
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.sim.records.run import load_run
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.readers.prompt_fields import estimated_tokens
from servetwin.workloads.request import Request
from servetwin.workloads.tokenizer import LocalTokenizer
from servetwin.workloads.trace import Trace
from tests.benchmarks.foreign import ENGINES, missing, served, write_model
from tests.support.command import SERVER, Done, refused, servetwin
from tests.support.dialect_servers import Kind, kinds, models, running
from tests.support.prompt_files import ANSWERS, QUESTIONS, chats, prompt_lines, sharegpt, table
from tests.support.small_tokenizer import small_tokenizer


def asked(trace: Path, *options: object, kind: str = "vllm") -> tuple[Kind, Done]:
    """What a server was asked, and what the command said."""
    server = kinds()[kind]
    with running(server) as url:
        start = ("loadtest", url, "--trace", trace, "--overwrite", "--out", trace.parent / "run")
        done = servetwin(*start, *options)
    return server, done


def bodies(server: Kind, api: str) -> list[dict[str, Any]]:
    assert {path for path, _ in server.asked} == {f"/v1/{api}"}
    return sorted((body for _, body in server.asked), key=lambda body: body["max_tokens"])


@pytest.mark.parametrize("write", [table, sharegpt, prompt_lines])
def test_the_real_text_is_sent(write: Callable[[Path], Path], tmp_path: Path) -> None:
    server, done = asked(write(tmp_path))
    assert done.code == 0, done.err
    assert sorted(body["prompt"] for body in bodies(server, "completions")) == sorted(QUESTIONS)
    assert "prompts as text" in done.err
    assert "note: lengths estimated at 4 bytes a token; --tokenizer counts them" in done.out


def test_outputs_are_as_long_as_the_file_says(tmp_path: Path) -> None:
    lengths = [body["max_tokens"] for body in bodies(asked(table(tmp_path))[0], "completions")]
    assert lengths == [5, 6, 7]
    lengths = [body["max_tokens"] for body in bodies(asked(sharegpt(tmp_path))[0], "completions")]
    assert lengths == sorted(estimated_tokens([answer]) for answer in ANSWERS)
    server, _ = asked(prompt_lines(tmp_path), "--output-tokens", "9")
    assert [body["max_tokens"] for body in bodies(server, "completions")] == [9, 9, 9]


def test_a_text_is_one_message_on_the_chat_api(tmp_path: Path) -> None:
    server, done = asked(table(tmp_path), "--api", "chat")
    assert done.code == 0, done.err
    said = [body["messages"] for body in bodies(server, "chat/completions")]
    assert said == [[{"role": "user", "content": question}] for question in QUESTIONS]


def test_chats_are_sent_as_they_are_to_the_chat_api(tmp_path: Path) -> None:
    server, done = asked(chats(tmp_path))
    assert done.code == 0, done.err
    system = {"role": "system", "content": "Be brief."}
    assert [body["messages"] for body in bodies(server, "chat/completions")] == [
        [system, {"role": "user", "content": [{"type": "text", "text": question}]}]
        for question in QUESTIONS
    ]


def test_a_rate_spreads_them_and_users_take_them_in_turn(tmp_path: Path) -> None:
    _, done = asked(table(tmp_path), "--rate", "50")
    assert "a Poisson process of 50/s (seed 0)" in done.out
    scheduled_s = load_run(tmp_path / "run").requests["scheduled_s"]
    assert scheduled_s.iloc[0] == 0.0
    assert scheduled_s.is_monotonic_increasing
    assert scheduled_s.iloc[-1] > 0
    server, done = asked(table(tmp_path), "--concurrency", "1", "--out", tmp_path / "users")
    assert done.code == 0, done.err
    assert [body["prompt"] for _, body in server.asked] == QUESTIONS
    again, _ = asked(tmp_path / "users" / "trace.jsonl", "--out", tmp_path / "again")
    assert [body["prompt"] for _, body in again.asked] == QUESTIONS


def test_headers_of_columns_are_sent_and_never_kept(tmp_path: Path) -> None:
    server, done = asked(table(tmp_path), "--header-columns", "tenant=X-Tenant-Key")
    assert done.code == 0, done.err
    sent = {
        body["prompt"]: headers["x-tenant-key"]
        for (_, body), headers in zip(server.asked, server.headers, strict=True)
    }
    assert sent == dict(zip(QUESTIONS, ["red", "blue", "green"], strict=True))
    kept = [path for path in (tmp_path / "run").iterdir() if b"blue" in path.read_bytes()]
    assert kept == []


def test_replay_takes_the_lengths(tmp_path: Path) -> None:
    done = servetwin(
        "replay", table(tmp_path), *SERVER, "--out", tmp_path / "run", "--replications", 0
    )
    assert done.code == 0, done.err
    assert "note: lengths estimated at 4 bytes a token; --tokenizer counts them" in done.out
    rows = load_run(tmp_path / "run").requests
    assert rows["output_tokens"].tolist() == [5, 6, 7]
    assert rows["prompt_tokens"].tolist() == [estimated_tokens([text]) for text in QUESTIONS]


@pytest.mark.parametrize(
    ("write", "options", "said"),
    [
        (table, ["--prompt", "ids"], "--prompt ids: the trace has real prompts, which are sent"),
        (chats, ["--api", "completions"], "--api completions: the trace has chats; leave it out"),
        (table, ["--prompt-scale", "2"], "--prompt-scale: real prompts have the lengths that"),
        (table, ["--prompt-tokens", "9"], "--prompt-tokens and --output-tokens are of a generated"),
        (table, ["--output-tokens", "x"], "--output-tokens: unknown 'x'"),
        (table, ["--header-columns", "x=X-X"], "prompts.csv:2: field 'x': missing; --header-col"),
        (table, ["--header-columns", "x=Host"], "--header-columns 'x=Host': Host is set by the"),
        (table, ["--reader", "chat"], "prompts.csv:1: field 'row': not JSON"),
    ],
)
def test_what_does_not_fit_is_one_line(
    write: Callable[[Path], Path], options: list[str], said: str, tmp_path: Path
) -> None:
    trace = write(tmp_path)
    with running(kinds()["vllm"]) as url:
        line = refused("loadtest", url, "--trace", trace, "--out", tmp_path / "run", *options)
    assert said in line


def test_a_trace_of_lengths_keeps_them(tmp_path: Path) -> None:
    write_trace(Trace((Request("r", 0.0, 3, 2),), "made"), tmp_path / "t.jsonl")
    line = refused(
        "loadtest", "http://127.0.0.1:9", "--trace", tmp_path / "t.jsonl", "--output-tokens", "9"
    )
    assert "--trace has its own lengths" in line


def test_real_prompts_are_not_cut(tmp_path: Path) -> None:
    long = tmp_path / "long.csv"
    long.write_text(f"prompt,output_tokens\n{20_000 * 'a'},4\nshort,4\n")
    server = kinds()["vllm"]
    with running(server) as url:
        start = ("loadtest", url, "--trace", long, "--out", tmp_path / "run", "--on-too-long")
        assert "real prompts are not cut; drop leaves them out" in refused(*start, "clip")
        assert servetwin(*start, "drop").code == 0
    assert [body["prompt"] for _, body in server.asked] == ["short"]


def test_a_header_that_the_server_repeats_is_hidden(tmp_path: Path) -> None:
    def repeating(body: Mapping[str, Any]) -> list[bytes]:
        return [b'data: {"error": "no tenant red, blue or green here"}\n\n']

    with running(Kind(models("us"), {"/v1/completions": repeating})) as url:
        done = servetwin(
            "loadtest", url, "--trace", table(tmp_path), "--out", tmp_path / "run",
            "--header-columns", "tenant=X-Tenant",
        )  # fmt: skip
    assert done.code == 1
    assert "sse_error: no tenant ***, blue or green here" in done.out


def test_the_client_and_the_server_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server counts words; the tokenizer also counts signs, and a token at the begin."""
    monkeypatch.chdir(tmp_path)  # a short name, which no line end cuts
    tokenizer = small_tokenizer(Path())
    _, done = asked(table(tmp_path), "--tokenizer", tokenizer)
    assert done.code == 0, done.err
    ours = LocalTokenizer(tokenizer).lengths(QUESTIONS, special=True)
    theirs = [len(question.split()) for question in QUESTIONS]
    said = " ".join(done.out.split())
    assert (
        f"the server counts {sum(theirs)} prompt tokens where {tokenizer} counts {sum(ours)}"
    ) in said
    assert "lengths estimated" not in said


def test_made_words_are_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer = small_tokenizer(Path())
    made = Trace((Request("a", 0.0, 30, 2), Request("b", 0.0, 10, 2)), "made")
    write_trace(made, tmp_path / "t.jsonl")
    options = ("--tokenizer", tokenizer, "--prompt")
    _, done = asked(tmp_path / "t.jsonl", *options, "text")
    assert "the server counts 40 prompt tokens where" in done.out
    assert "counts 42 (" in " ".join(done.out.split()), "one more for the begin of each"
    _, done = asked(tmp_path / "t.jsonl", *options, "ids", "--out", tmp_path / "ids")
    said = " ".join(done.out.split())
    assert f"the server counts the prompt tokens that {tokenizer} counts" in said


def test_a_generated_load_takes_a_tokenizer(tmp_path: Path) -> None:
    with running(kinds()["vllm"]) as url:
        start = ("loadtest", url, "--arrivals", "constant", "--rate", 50, "--limit", 3)
        line = refused(*start, "--tokenizer", tmp_path / "none")
        assert f"--tokenizer {tmp_path / 'none'}: no such file" in line
        done = servetwin(
            *start, "--out", tmp_path / "run", "--prompt", "text",
            "--tokenizer", small_tokenizer(tmp_path),
        )  # fmt: skip
    assert done.code == 0, done.err
    assert "prompt tokens where" in done.out


PYTHON = os.environ.get("SERVETWIN_FOREIGN_PYTHON", sys.executable)
"""An interpreter that has the server of transformers, or vLLM."""

Write = Callable[[Path], Path]
FILES = [sharegpt, chats, table]
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }}\n{% endfor %}"


def check_finished(folder: Path, outputs: list[int] | None) -> None:
    """Every request finished, with tokens of its own counted by the server."""
    run = load_run(folder)
    rows = run.requests
    assert rows["error"].isna().all(), run.extra["delivered"]["first_messages"]
    assert len(rows) == 3
    assert (rows["prompt_tokens"] > 5).all()
    assert (rows["ttft_s"] > 0).all()
    if outputs is not None:
        assert rows.sort_values("request_id")["output_tokens"].tolist() == outputs


@pytest.fixture(scope="module")
def bundled() -> Iterator[str]:
    options = ServeOptions(model="tiny", policies=PolicyConfig(kv_tokens=4096, max_model_len=2048))
    with EngineServer(options) as server:
        yield server.url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "outputs"), [(sharegpt, [8, 5, 3]), (chats, [5, 6, 7]), (table, [5, 6, 7])]
)
def test_the_bundled_engine(bundled: str, write: Write, outputs: list[int], tmp_path: Path) -> None:
    done = servetwin(
        "loadtest", bundled, "--trace", write(tmp_path), "--rate", 20, "--out", tmp_path / "run"
    )
    assert done.code == 0, done.err
    check_finished(tmp_path / "run", outputs)
    assert "the server counts" in done.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--image", "8x8"], "HTTP 400: messages:"),
        (["--api", "embeddings"], "HTTP 404: POST /v1/embeddings: not found"),
        (
            ["--extra-body", '{"typical_p": 0.5}'],
            "HTTP 400: typical_p: this server supports only 1",
        ),
    ],
)
def test_the_bundled_engine_says_what_it_does_not_support(
    bundled: str, options: list[str], said: str, tmp_path: Path
) -> None:
    done = servetwin(
        "loadtest", bundled, "--trace", table(tmp_path), "--out", tmp_path / "run", *options
    )
    assert done.code == 1
    assert said in done.out


def test_whole_answers_of_the_bundled_engine(bundled: str, tmp_path: Path) -> None:
    done = servetwin(
        "loadtest", bundled, "--trace", table(tmp_path), "--no-stream", "--out", tmp_path / "run"
    )
    assert done.code == 0, done.err
    rows = load_run(tmp_path / "run").requests
    assert rows["output_tokens"].tolist() == [5, 6, 7]
    assert rows["ttft_s"].isna().all()
    assert (rows["e2e_s"] > 0).all()


@pytest.fixture(scope="module", params=["transformers", "vllm"])
def foreign(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The URL of an engine from elsewhere and the name of its model, which knows chats."""
    engine = ENGINES[request.param]
    if absent := missing(engine, PYTHON):
        pytest.skip(f"SERVETWIN_FOREIGN_PYTHON: {PYTHON} has no {', '.join(absent)}")
    model = write_model(engine, PYTHON, tmp_path_factory.mktemp("foreign"), layers=1)
    (model / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    with served(engine, PYTHON, model) as (url, named):
        yield url, named


@pytest.mark.foreign
@pytest.mark.parametrize("write", FILES)
def test_an_engine_from_elsewhere(foreign: tuple[str, str], write: Write, tmp_path: Path) -> None:
    url, model = foreign
    done = servetwin(
        "loadtest", url, "--model", model, "--trace", write(tmp_path), "--rate", 5,
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.code == 0, done.err
    check_finished(tmp_path / "run", None)
