"""Real prompts against real servers: the bundled engine always, and engines from elsewhere."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servetwin.engine.http.engine_server import EngineServer
from servetwin.engine.serve_options import ServeOptions
from servetwin.policies.config import PolicyConfig
from servetwin.sim.records.run import load_run
from tests.benchmarks.foreign import ENGINES, missing, served, write_model
from tests.support.command import servetwin
from tests.support.prompt_files import chats, sharegpt, table

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
