"""Engines to measure: the bundled one, started for the purpose, or one that runs already."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from app.scenario.engine_options import EngineChoice
from engine.core.step_log import read_step_log
from engine.http.engine_server import EngineServer
from engine.serve_options import ServeOptions
from policies.config import PolicyConfig
from workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class LiveEngine:
    """A running bundled engine whose step log lies on this machine."""

    url: str
    step_log: Path

    def header(self) -> dict[str, Any]:
        """Engine, resolved policies and clock zero, as the step log states them."""
        return read_step_log(self.step_log)[0]


@contextmanager
def bundled_engine(config: PolicyConfig, choice: EngineChoice) -> Iterator[LiveEngine]:
    """Start the bundled engine on a free port, and stop it at the end."""
    with TemporaryDirectory(prefix="servetwin-") as folder:
        options = ServeOptions(
            model=choice.model,
            policies=config,
            port=0,
            computation=choice.computation(),
            seed=choice.seed,
            step_log=Path(folder) / "steps.jsonl",
        )
        with EngineServer(options) as server:
            assert options.step_log is not None
            yield LiveEngine(server.url, options.step_log)


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
            f"{url}: verify needs the bundled engine (servetwin serve --step-log FILE); this "
            f"endpoint does not answer /servetwin/engine ({error!r})"
        ) from error
    if not step_log or not Path(step_log).is_file():
        raise EngineError(f"{url}: no step log to read here; start it with --step-log FILE")
    return LiveEngine(base, Path(step_log))
