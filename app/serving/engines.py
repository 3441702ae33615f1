"""Engines to measure: the bundled one, started for the purpose, or one that runs already."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from servetwin.engine.core.step_log import read_step_log
from servetwin.engine.http.engine_server import EngineServer
from servetwin.engine.serve_options import ServeOptions
from servetwin.workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class LiveEngine:
    """A running bundled engine whose step log lies on this machine."""

    url: str
    step_log: Path

    def header(self) -> dict[str, Any]:
        """Engine, resolved policies and clock zero, as the step log states them."""
        return read_step_log(self.step_log)[0]


@contextmanager
def started_engine(options: ServeOptions) -> Iterator[LiveEngine]:
    """Start an engine with ``options`` on a free port, with a step log, and stop it at the end."""
    with TemporaryDirectory(prefix="servetwin-") as folder:
        log = Path(folder) / "steps.jsonl"
        with EngineServer(replace(options, step_log=log)) as server:
            yield LiveEngine(server.url, log)


def engine_at(url: str) -> LiveEngine:
    """A bundled engine that runs already, on this machine and with a step log.

    Raises ``EngineError`` where ``url`` is something else.
    """
    base = url.rstrip("/").removesuffix("/v1")
    try:
        facts = httpx.get(f"{base}/servetwin/engine", timeout=10, trust_env=False).json()
        step_log = facts["step_log"]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"{url}: not the bundled engine with a step log (servetwin serve --step-log FILE)"
        ) from error
    if not step_log or not Path(step_log).is_file():
        raise EngineError(f"{url}: no step log to read here; start it with --step-log FILE")
    return LiveEngine(base, Path(step_log))
