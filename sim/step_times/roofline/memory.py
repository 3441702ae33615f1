"""The memory of the devices: weights, the largest step, keys and values, states."""

from bisect import bisect_right
from dataclasses import dataclass
from math import inf

from servetwin.policies.config import PolicyConfig, has_token_budget
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.operators import STATE_BYTES
from servetwin.sim.step_times.roofline.step_memory import LargestStep, StepMemory


def largest_step(
    policies: PolicyConfig, most_tokens: float = inf, *, keeps_tokens: bool = True
) -> LargestStep:
    """Return the largest step under ``policies``.

    No step has more rows than the memory keeps tokens (``most_tokens``). A model that keeps none
    computes as much of a prompt at once as it likes: the token budget.
    """
    rows = float(policies.max_seqs * policies.max_model_len)
    if has_token_budget(policies.batching) or not keeps_tokens:
        rows = min(rows, policies.token_budget)
    rows = min(rows, most_tokens)
    return LargestStep(rows, min(policies.max_seqs, rows), min(policies.max_model_len, most_tokens))


@dataclass(frozen=True, slots=True)
class KVRoom:
    """How many ``units`` of KV memory fit, beside the ``step_bytes`` of the largest step then.

    A unit is a token of all layers, or of a group of them.
    """

    units: int
    step_bytes: float

    @classmethod
    def beside(
        cls,
        deployment: Deployment,
        policies: PolicyConfig,
        weights: float,
        unit_bytes: float | None = None,
    ) -> "KVRoom":
        """Return the room beside ``weights``; no units where not even they fit."""
        model = deployment.model
        keeps_tokens = model.kv_elements_per_token() > 0
        whole_bytes = deployment.kv_bytes_per_token() or model.state_elements() * STATE_BYTES
        unit_bytes = unit_bytes or whole_bytes

        def step_bytes(units: int) -> float:
            is_bounded = keeps_tokens and not deployment.memory.is_profiled
            most_tokens = units if is_bounded else inf
            return deployment.step_bytes(
                largest_step(policies, most_tokens, keeps_tokens=keeps_tokens)
            )

        def taken(units: int) -> float:
            return units * unit_bytes / deployment.memory.free_share + step_bytes(units)

        room = max(0.0, deployment.usable_bytes() - weights)
        units = bisect_right(range(int(room / unit_bytes) + 1), room, key=taken) - 1
        return cls(max(0, units), step_bytes(max(1, units)))


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """Bytes of a model; ``sequence_bytes`` are those of one sequence of the given context.

    ``step_bytes`` are those of the tensors of the largest step, ``fragmentation_bytes`` what the
    allocator of a GPU wastes on them.
    """

    model: str
    params: float
    weight_bytes: float
    kv_bytes_per_token: float
    state_bytes: float
    sequence_bytes: float
    step_bytes: float
    fragmentation_bytes: float

    def sequences_in(self, memory_bytes: float) -> int:
        """Return how many sequences fit beside weights and step; 0 where these alone do not."""
        step_bytes = self.step_bytes + self.fragmentation_bytes
        room = memory_bytes - self.weight_bytes - step_bytes
        return max(0, int(room // self.sequence_bytes))


def memory_sizes(
    model: ModelShape,
    context_tokens: int,
    bytes_per_weight: float = 2.0,
    kv_element_bytes: float = 2.0,
    step: StepMemory | None = None,
) -> MemorySizes:
    """Return the sizes at these bytes per number; attention keeps 2 L k e c per token."""
    step = step or StepMemory()
    state_bytes = model.state_elements() * STATE_BYTES
    elements = model.resident_kv_elements(context_tokens) - model.state_elements()
    params, per_token = model.params(), model.kv_elements_per_token() * kv_element_bytes
    weights, sequence = params * bytes_per_weight, elements * kv_element_bytes + state_bytes
    of_step = step.allocated_bytes, step.fragmentation_bytes
    return MemorySizes(model.name, params, weights, per_token, state_bytes, sequence, *of_step)
