"""Prefill and decode on separate pools, and the links between them (Splitwise, DistServe 2024).

Keys and values leave the memory of the prefill replica when the transfer *starts*, as if they were
copied out at once: a queue on the link holds no KV memory. The decode replica gives them memory
when it admits the sequence.
"""

from dataclasses import dataclass
from functools import partial
from math import inf

from servetwin.policies.protocols import Refusal
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.pools import RoutedReplicas
from servetwin.sim.core.replica import Listener
from servetwin.sim.core.tick_queue import TickQueue
from servetwin.sim.step_times.step_time import SECONDS_PER_TICK, to_ticks
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.native_class import mypyc_attr
from servetwin.workloads.request import Request


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True)
class KVLink:
    """The link of each prefill replica: ``latency_s``, and ``token_s`` for every KV token.

    The transfers of one replica follow each other; the latency of one does not delay the next.
    """

    latency_s: float = 0.0
    token_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("latency_s", "token_s"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise PolicyError(f"link: {name} must be finite and at least 0, not {value!r}")

    @classmethod
    def of(cls, kv_bytes_per_token: float, bytes_per_s: float, latency_s: float = 0.0) -> "KVLink":
        """Return a link of this bandwidth for tokens of this size.

        Raises ``PolicyError`` if the bandwidth is not above 0.
        """
        if not bytes_per_s > 0:
            raise PolicyError(f"link: bytes_per_s must be above 0, not {bytes_per_s!r}")
        return cls(latency_s, kv_bytes_per_token / bytes_per_s)


@dataclass(eq=False)
class PrefillDecode:
    """A service that computes prompts on one group of replicas and decodes on another.

    The prefill replica gives the first token. A request of one token ends there. The keys and
    values of all others are transferred; then the decode router chooses a replica, where the
    sequence waits.
    """

    prefill: RoutedReplicas
    decode: RoutedReplicas
    link: KVLink

    def __post_init__(self) -> None:
        self.env, self.recorder = self.prefill.env, self.prefill.recorder
        self._latency = to_ticks(self.link.latency_s)
        # The tick at which the link of each prefill replica is free.
        self._free_ticks = [0] * len(self.prefill.replicas)
        self._transfers = TickQueue(self.env)
        self._listeners: list[Listener] = []
        # By row, whose prompts are computed.
        self._prompts: dict[int, Request] = {}
        for place, replica in enumerate(self.prefill.replicas):
            replica.listeners.append(partial(self._prefilled, place))

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` for every sequence whose request has ended."""
        self._listeners.append(listener)
        self.decode.listen(listener)

    def receive(self, request: Request, row: int) -> None:
        """Send the prompt of a request to a prefill replica."""
        self._prompts[row] = request
        self.prefill.receive(request, row, self._enter_prefill)

    def _enter_prefill(self, seq: Sequence, replica: int) -> None:
        seq.max_tokens = 1
        self.recorder.arrived(seq, replica)

    def _prefilled(self, place: int, seq: Sequence, refusal: Refusal | None) -> None:
        request = self._prompts.pop(seq.number)
        if refusal is None and request.output_tokens > 1:
            self._transfer(place, request, seq.number)
            return
        for listener in self._listeners:
            listener(seq, refusal)

    def _transfer(self, place: int, request: Request, row: int) -> None:
        now = self.env.tick
        begin = max(now, self._free_ticks[place])
        sent = begin + to_ticks(request.prompt_tokens * self.link.token_s)
        self._free_ticks[place] = sent
        enter = partial(self._enter_decode, now * SECONDS_PER_TICK)
        arrival = partial(self.decode.receive, request, row, enter)
        self._transfers.post(self._transfers.soon(sent + self._latency), row, arrival)

    def _enter_decode(self, prefill_end_s: float, seq: Sequence, replica: int) -> None:
        seq.base_computed_tokens = seq.prompt_tokens
        seq.base_generated_tokens = 1
        self.recorder.handed_over(seq, replica, prefill_end_s)
