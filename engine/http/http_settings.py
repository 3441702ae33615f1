"""Where the API listens, and what it allows its clients and its core."""

from dataclasses import dataclass

from servetwin.workloads.program.loopback import is_loopback

CLIENT_ANSWERS = 1024


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The limits of one server; ``port`` 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8000
    drain_s: float = 30.0
    """How long running requests may go on after a signal to stop."""
    max_body_bytes: int = 8 << 20
    """The largest body of a request."""
    step_limit_s: float = 60.0
    """A core that ends no step for so long is reported as stalled."""
    max_restarts: int = 5
    """How often a core that died is started again within five minutes; 0: the server ends."""
    allow_origins: tuple[str, ...] = ()
    """Web pages of these origins may call the API; ``*``: all."""
    api_key: str | None = None
    """The key that clients must send."""
    max_client_answers: int | None = None
    """Unfinished answers of one client."""

    def client_limit(self) -> int | None:
        """Return the limit of one client: a machine that serves itself has none by default."""
        if self.max_client_answers is None and not is_loopback(self.host):
            return CLIENT_ANSWERS
        return self.max_client_answers
