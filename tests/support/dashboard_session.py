"""A session of the dashboard without a browser: its websocket, spoken as Streamlit's page does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol


@dataclass
class Session:
    """What has been drawn so far: the kinds of elements in their order, and texts of messages."""

    socket: ClientConnection
    drawn: list[str] = field(default_factory=list)
    is_finished: bool = False
    texts: list[str] = field(default_factory=list)

    @property
    def metrics(self) -> int:
        """How many metrics have been drawn."""
        return self.drawn.count("metric")

    async def rerun(self, query: str) -> None:
        """Ask for the page Explore of a link."""
        message = BackMsg()
        message.rerun_script.page_name = "explore"
        message.rerun_script.query_string = query
        self.is_finished = False
        await self.socket.send(message.SerializeToString())

    async def receive(self) -> None:
        """Take the next message of the server."""
        message = ForwardMsg()
        content = await self.socket.recv()
        assert isinstance(content, bytes)
        message.ParseFromString(content)
        self._take(message)

    def _take(self, message: Any) -> None:
        kind = message.WhichOneof("type")
        if kind == "script_finished":
            self.is_finished = message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN
        elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
            element = message.delta.new_element
            shown = element.WhichOneof("type")
            self.drawn.append(shown)
            if shown == "exception":
                self.texts.append(
                    "EXCEPTION error " + element.exception.type + element.exception.message
                )
            if shown in ("alert", "markdown"):
                self.texts.append(getattr(element, shown).body)


@asynccontextmanager
async def open_session(url: str, query: str) -> AsyncIterator[Session]:
    """Open a session of the dashboard at ``url``, on the scenario of ``query``."""
    address = f"{url.replace('http', 'ws', 1)}/_stcore/stream"
    async with connect(
        address,
        subprotocols=[Subprotocol("streamlit")],
        max_size=None,
        proxy=None,
        ping_timeout=None,
    ) as socket:
        session = Session(socket)
        await session.rerun(query)
        yield session
