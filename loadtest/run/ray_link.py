"""Workers on the nodes of a Ray cluster: an actor each, which runs a worker process."""

import asyncio
import pickle
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from servetwin.loadtest.credentials import carried_variables
from servetwin.loadtest.endpoint import Endpoint, server_url
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.plan.schedule import ClockZero
from servetwin.loadtest.redaction import redact
from servetwin.loadtest.run.node_clock import NodeClock, measure_clock
from servetwin.loadtest.run.ray_worker import RayWorker
from servetwin.loadtest.run.worker import WorkerJob
from servetwin.sim.experiments.ray_cluster import ray_cluster
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.program.loopback import is_loopback

# The longest wait for an actor: Ray itself waits for a free place without end.
START_S = 60.0
T = TypeVar("T")


class RayLink:
    """The link to an actor on some node of a cluster, over which Ray spreads them."""

    def __init__(self, ray: Any, variables: dict[str, str]) -> None:
        self._ray = ray
        spread = {"num_cpus": 1, "scheduling_strategy": "SPREAD", "max_restarts": 0}
        self._actor = ray.remote(RayWorker).options(**spread).remote(variables)

    async def start(self, job: WorkerJob) -> None:
        """Wait until the actor runs, and send the job to its process."""
        try:
            await asyncio.wait_for(self._answer(self._actor.start.remote(job)), START_S)
        except TimeoutError:
            raise LoadTestError(
                f"--workers ray: no actor has started within {START_S:g} s; 'ray status' shows why"
            ) from None

    async def measure_clock(self) -> NodeClock | None:
        """Measure the clock of the node; None when the actor has died."""
        with suppress(self._ray.exceptions.RayActorError):
            node = await self._actor.node.remote()
            return await measure_clock(node, self._actor.clock_ns.remote)
        return None

    async def begin(self, zero: ClockZero) -> None:
        """Send the zero, which is on the clock of the node."""
        await self._answer(self._actor.begin.remote(zero))

    async def receive(self) -> Any:
        """Wait for the next message; None when the worker has died."""
        frame = await self._answer(self._actor.frame.remote())
        return None if frame is None else pickle.loads(frame)

    def stop(self) -> None:
        """Make the worker hand in what it has."""
        self._actor.stop.remote()

    async def death(self) -> str:
        """Return how the process ended, or that the actor has died."""
        return await self._answer(self._actor.death.remote()) or "was lost with its Ray actor"

    async def end(self) -> None:
        """Kill the actor; its process ends with it."""
        self._ray.kill(self._actor)

    async def _answer(self, call: Awaitable[T]) -> T | None:
        """Return what the actor answers; None when it has died."""
        try:
            return await call
        except self._ray.exceptions.RayActorError:
            return None
        except self._ray.exceptions.RayError as error:
            reason = redact(str(error))[-200:]
            raise LoadTestError(f"--workers ray: an actor failed: {reason}") from error


@contextmanager
def ray_links(
    endpoint: Endpoint, options: LoadOptions, wanted: int, most: int
) -> Iterator[Sequence[RayLink]]:
    """Connect to a Ray cluster and yield a link to each worker.

    There are ``wanted`` workers, but at least one for each node, unless their number was chosen,
    and at most ``most``. Raises ``LoadTestError`` where the cluster has no place for them, or where
    its nodes cannot reach the endpoint by its address.
    """
    with ray_cluster("--workers ray", options.ray_address) as ray:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        _require_common_address(endpoint, {node["NodeManagerAddress"] for node in nodes})
        free = int(ray.available_resources().get("CPU", 0))
        count = options.processes or min(max(wanted, len(nodes)), free)
        if not 0 < min(count, most) <= free:
            raise LoadTestError(
                f"--workers ray: {max(count, 1)} processes need as many free CPUs, and the cluster "
                f"has {free}; give fewer --processes"
            )
        variables = carried_variables()
        yield [RayLink(ray, variables) for _ in range(min(count, most))]


def _require_common_address(endpoint: Endpoint, nodes: set[str]) -> None:
    """Raise ``LoadTestError`` where the address means another machine on every node."""
    host = server_url(endpoint.base_url).host
    if len(nodes) > 1 and is_loopback(host):
        raise LoadTestError(
            f"--workers ray: {host} is another machine on each of {len(nodes)} nodes; give the "
            "server's address in their network"
        )
