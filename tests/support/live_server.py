"""The real HTTP API on a socket, over a core process with a fake executor."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

import httpx
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from servetwin.engine.core.core_client import CoreClient
from servetwin.engine.core.core_process import BuildCore
from servetwin.engine.core.supervisor import Supervisor
from servetwin.engine.http.api import create_app
from servetwin.engine.http.guarded_protocol import GuardedProtocol
from servetwin.engine.http.http_settings import HttpSettings
from servetwin.engine.http.serving import CoreServer
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from servetwin.workloads.program.listening import listening_socket
from tests.support.fake_engine import build_fake

CONFIG = PolicyConfig(
    kv_tokens=256, block_tokens=4, max_model_len=300, max_seqs=4, prefix_cache=True
)
NO_RESTARTS = HttpSettings(max_restarts=0)
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


def with_prompt(**fields: Any) -> dict[str, Any]:
    return {"prompt": "A"} | fields


def with_messages(*messages: Any) -> dict[str, Any]:
    return {"messages": list(messages)}


class LiveServer:
    """Serves in a thread for as long as a ``with`` block lasts."""

    def __init__(
        self,
        config: PolicyConfig,
        step_s: float = 0.0,
        settings: HttpSettings = NO_RESTARTS,
        build: BuildCore | None = None,
    ) -> None:
        self._build = build or build_fake(config, step_s)
        self._settings = settings

    def __enter__(self) -> "LiveServer":
        self.core = CoreClient("fake", ByteTokenizer())
        self._supervisor = Supervisor(self._build, self.core, self._settings.max_restarts)
        self.socket = listening_socket("127.0.0.1", 0, EngineError)
        config = uvicorn.Config(
            create_app(self.core, self._settings),
            http=GuardedProtocol,
            log_level="critical",
            access_log=False,
        )
        self._server = _Server(config, self.core, self._supervisor, self._settings, lambda: None)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        port = self.socket.getsockname()[1]
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20)
        wait_until(self.core.ready.is_set, 120.0)  # torch may be imported on a busy machine
        return self

    @property
    def process(self) -> BaseProcess:
        """The process of the present core."""
        assert self._supervisor.link is not None
        return self._supervisor.link.process

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join()

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
        with contextlib.suppress(EngineError):  # a core that a test has killed
            asyncio.run(self._server.serve(sockets=[self.socket]))


class _Server(CoreServer):
    """In a thread, where no signals come."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to pytest."""
        yield


def _reason(labels: dict[str, str]) -> list[str]:
    return [labels["finished_reason"]] if "finished_reason" in labels else []


def wait_until(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Return once ``holds``; fail when it does not for too long."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.01)
