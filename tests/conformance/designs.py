"""Where our policies differ from vLLM on purpose: workloads that show it, and what it costs."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

from tests.conformance.cost import Cost, cost
from tests.conformance.drive import drive
from tests.conformance.own_server import OwnServer, policies_of
from tests.conformance.workload import Step, Workload


class Design(NamedTuple):
    """A difference by design."""

    about: str
    source: str
    """The function of vLLM 0.32."""
    changed: Callable[[Workload], Workload]
    """Makes a workload of random settings show it."""
    aborts_at_once: bool = False


def _watermark(workload: Workload) -> Workload:
    """Keep a share free of which the rounding differs by vLLM's spare block."""
    blocks = workload.blocks
    while int(0.1 * blocks) == int(0.1 * (blocks + 1)):
        blocks += 1
    return replace(workload, watermark=0.1, blocks=blocks)


def _aborts(workload: Workload) -> Workload:
    """Let a third of the clients hang up, where steps are decided ahead."""
    rng = Random(workload.name)
    requests = [
        replace(one, abort_after=rng.randint(0, 20)) if rng.random() < 1 / 3 else one
        for one in workload.requests
    ]
    return replace(workload, decide_ahead=True, requests=requests)


def _states(workload: Workload) -> Workload:
    """Let some layers keep states, with a prefix cache."""
    blocks = 2 * workload.blocks + 4
    return replace(workload, groups="full,state", prefix_cache=True, blocks=blocks, watermark=0.0)


DESIGNS = [
    Design(
        "the watermark counts vLLM's own spare block", "KVCacheManager.__init__", _watermark
    ),
    Design(
        "an abort takes its row out of the next step", "EngineCore.abort_requests", _aborts, True
    ),
    Design(
        "no chunk is cut where a state is kept (in blocks of 16 tokens; those of real hybrids have "
        "500 and more)", "Scheduler._mamba_block_aligned_split", _states
    ),
]  # fmt: skip


def size(
    design: Design, workloads: list[Workload], steps: Callable[[Workload], list[Step]]
) -> dict[str, str]:
    """Return by how much ours differs in all workloads; ``steps`` are vLLM's."""
    theirs, ours = list[Cost](), list[Cost]()
    for workload in map(design.changed, workloads):
        own = OwnServer(policies_of(workload), design.aborts_at_once)
        theirs.append(cost(workload, steps(workload)))
        ours.append(cost(workload, drive(workload, own)))
    their_sum, our_sum = (Cost(*map(sum, zip(*each, strict=True))) for each in (theirs, ours))
    return {"about": design.about, "source": design.source, "size": their_sum.beside(our_sum)}
