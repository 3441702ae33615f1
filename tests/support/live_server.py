"""The real HTTP API on a socket, over a core process with a fake executor."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import httpx
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from engine.core.core_client import CoreClient
from engine.core.core_process import start_process
from engine.core.metrics import Metrics
from engine.http.api import create_app
from policies.config import PolicyConfig
from tests.support.fake_engine import build_fake

CONFIG = PolicyConfig(
    kv_tokens=256, block_tokens=4, max_model_len=300, max_seqs=4, prefix_cache=True
)
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


def with_prompt(**fields: Any) -> dict[str, Any]:
    return {"prompt": "A"} | fields


def with_messages(*messages: Any) -> dict[str, Any]:
    return {"messages": list(messages)}


class LiveServer:
    """Serves in a thread for as long as a ``with`` block lasts."""

    def __init__(self, config: PolicyConfig, step_s: float = 0.0) -> None:
        self._config = config
        self._step_s = step_s

    def __enter__(self) -> "LiveServer":
        self.process, self._connection, facts = start_process(
            build_fake(self._config, self._step_s)
        )
        self.core = CoreClient(self._connection, Metrics(facts["model"]))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._server = uvicorn.Server(
            uvicorn.Config(create_app(self.core, facts), log_level="critical", access_log=False)
        )
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        port = self._socket.getsockname()[1]
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20)
        wait_until(lambda: self._server.started)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join()
        self.core.stop()
        self.process.join()
        self.process.close()
        self._connection.close()

    def metrics(self) -> dict[str, float]:
        """Samples by name, with the reason where a sample has one."""
        text = self.client.get("/metrics").text
        return {
            "/".join([sample.name, *_reason(sample.labels)]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if "le" not in sample.labels
        }

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


def _reason(labels: dict[str, str]) -> list[str]:
    return [labels["finished_reason"]] if "finished_reason" in labels else []


def wait_until(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Return once ``holds``; fail when it does not for too long."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.01)
