"""A deployment as a server that can be simulated: step times, memory, the limits of its batches.

Every roofline run is checked against the data sheet, which no server can beat. A step of T tokens
takes at least 2 P T / F and at least the time to read every weight that it must read once; so
output throughput never exceeds F / (2 P), nor what the bandwidth allows.
"""

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from servetwin.policies.config import PolicyConfig
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.catalogue.kv_pages import kv_pages
from servetwin.sim.records.columns import Table, rows_of
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Acceptance
from servetwin.sim.step_times.link_sensitivity import link_lines
from servetwin.sim.step_times.profile import ApiLatencyFit
from servetwin.sim.step_times.provenance import Origin
from servetwin.sim.step_times.roofline.deployment import Deployment, Part
from servetwin.sim.step_times.roofline.formats import Format
from servetwin.sim.step_times.roofline.memory import KVRoom
from servetwin.sim.step_times.roofline.operators import STATE_BYTES
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.step_times.server_model import UnmeasuredServer
from servetwin.sim.step_times.step_time import StepTime
from servetwin.workloads.errors import PolicyError, ServetwinError

MAX_SEQS = 256
TOKEN_BUDGET = 2048
NEVER_FULL_TOKENS = 1 << 40


@dataclass(frozen=True)
class RooflineServer(UnmeasuredServer):
    """A server made of data sheets.

    ``acceptance`` says how many drafted tokens a pass accepts, where there are any.
    """

    deployment: Deployment
    api: ApiLatencyFit = field(default_factory=ApiLatencyFit)
    acceptance: Acceptance | None = None
    origin: ClassVar[Origin] = "computed from data sheets"

    @property
    def name(self) -> str:
        """The name in reports."""
        return self.deployment.name

    def describe(self) -> list[str]:
        """Return lines with model, devices and assumed efficiencies."""
        return [
            f"roofline {self.name} ({self.origin})",
            f"  assumed: {self.deployment.efficiency}",
            *self._link_lines(),
        ]

    def _link_lines(self) -> list[str]:
        deployment, parallel = self.deployment, self.deployment.parallel
        if parallel.devices == 1:
            return []

        def over(link: Link) -> StepTime:
            return roofline_step_time(replace(deployment, parallel=replace(parallel, link=link)))

        return [f"  {line}" for line in link_lines(deployment.link, over)]

    @cached_property
    def _model(self) -> StepTime:
        return roofline_step_time(self.deployment)

    def model(self) -> StepTime:
        """Return the step times at the assumed efficiencies, which remember what they computed."""
        return self._model

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def drawn(self, rng: np.random.Generator) -> StepTime:
        """Return the step times at efficiencies drawn from their spread."""
        efficiency = self.deployment.efficiency.drawn(rng)
        return roofline_step_time(replace(self.deployment, efficiency=efficiency))

    def is_certain(self) -> bool:
        """Return whether the efficiencies have no spread."""
        return self.deployment.efficiency.is_certain()

    def kv_bytes_per_token(self) -> float:
        """Return the bytes of keys and values of one token, or of a state without any."""
        state = self.deployment.model.state_elements() * STATE_BYTES
        return self.deployment.kv_bytes_per_token() or state

    def check(self, run: Run, replicas: range) -> None:
        """Raise ``BoundBroken`` where a step of a replica was faster than the devices can be."""
        steps = run.table("steps")
        replica = steps["replica"]
        own = (replicas.start <= replica) & (replica < replicas.stop)
        check_bounds(rows_of(steps, own), self.deployment)

    def policy_config(self) -> PolicyConfig:
        """Return continuous batching on as much paged memory as the weights leave.

        Raises ``PolicyError`` where the weights do not fit.
        """
        return memory_settings(self.deployment, base_policies(self.deployment.model.max_model_len))


def unlimited_policies(max_model_len: int = PolicyConfig().max_model_len) -> PolicyConfig:
    """Return continuous batching on memory that no trace fills: no device says how large it is."""
    return replace(base_policies(max_model_len), kv_tokens=NEVER_FULL_TOKENS)


def base_policies(max_model_len: int) -> PolicyConfig:
    """Return continuous batching on paged memory of a size that is still open."""
    return PolicyConfig(max_model_len=max_model_len, max_seqs=MAX_SEQS, token_budget=TOKEN_BUDGET)


def memory_settings(deployment: Deployment, config: PolicyConfig) -> PolicyConfig:
    """Return ``config`` with the KV memory that fits the deployment, and how it grows.

    Of ranks that step together it is the memory of one. Layers with windows, budgets or states are
    groups of their own, as vLLM has them (``kv_pages``); then the unit is a token of one group.
    Raises ``PolicyError`` where the weights, or a single block beside them, do not fit.
    """
    if not deployment.kv_cache:
        return replace(config, kv_tokens=NEVER_FULL_TOKENS)
    deployment.require_room_for_weights()
    model, weights = deployment.model, deployment.resident_weight_bytes()
    per_element = deployment.kv_bytes_per_token() / (model.kv_elements_per_token() or 1)
    pages = kv_pages(model, config.block_tokens, per_element, STATE_BYTES)
    groups, block_tokens = pages.groups, pages.block_tokens
    unit_bytes = pages.block_bytes / block_tokens
    if per_element and config.kv not in ("paged", "grouped"):
        groups, block_tokens = "full", config.block_tokens  # regions, and memories of a file
        unit_bytes = deployment.kv_bytes_per_token()
    room = KVRoom.beside(deployment, config, weights, unit_bytes)
    units = room.units // (deployment.parallel.groups if deployment.parallel.lockstep else 1)
    if units < block_tokens:
        left = deployment.usable_bytes() - weights
        raise PolicyError(
            f"{deployment.name}: the weights leave {left / 1e9:.3f} GB; beside the "
            f"{room.step_bytes / 1e9:.3f} GB of a step, not even one block of {block_tokens} "
            f"tokens of {unit_bytes:.0f} bytes"
        )
    kv = config.kv if groups == "full" else "grouped"
    return replace(config, kv=kv, kv_groups=groups, block_tokens=block_tokens, kv_tokens=units)


_ROUNDING = 1e-9


class BoundBroken(ServetwinError):
    """A simulated step was faster than its device can be."""


def check_bounds(steps: Table, deployment: Deployment) -> None:
    """Check every row of ``steps`` (``sim.core.recorder.STEP_COLUMNS``).

    Raises ``BoundBroken`` with the first step that is too fast.
    """
    start_s, end_s, each, count = (
        np.asarray(steps[name], float) for name in ("start_s", "end_s", "rows", "steps")
    )
    elapsed_s, rows = end_s - start_s, each * count
    least_s = np.maximum(rows * least_token_s(deployment), count * least_read_s(deployment))
    slack = _ROUNDING * np.maximum(1.0, end_s)
    broken = np.flatnonzero(elapsed_s < least_s - slack)
    if len(broken):
        first = int(broken[0])
        raise BoundBroken(
            f"the step at {start_s[first]:.6f} s took "
            f"{elapsed_s[first] * 1e3:.6g} ms; {deployment.name} needs at least "
            f"{least_s[first] * 1e3:.6g} ms for its {rows[first]:.0f} tokens"
        )


def least_token_s(deployment: Deployment) -> float:
    """Return 2 P / F, the share of one token in a step: its layers, not the head."""
    flops, devices = 2 * _least_params(deployment), deployment.parallel.devices
    peaks = [
        deployment.hardware.peak(form.compute)
        * devices
        * max(1.0, form.compute_share)  # a sparse product computes a part of its FLOPs
        for form in _forms(deployment)
    ]
    return flops / max(peaks)


def least_read_s(deployment: Deployment) -> float:
    """Return the seconds to read the weights that any step needs, over all devices."""
    weight_bytes = min(form.weight_bytes for form in _forms(deployment))
    bandwidth = deployment.hardware.memory_bytes_per_s * deployment.parallel.devices
    return _least_params(deployment) * weight_bytes / bandwidth


def _forms(deployment: Deployment) -> list[Format]:
    """Return the formats of all layers."""
    parts: tuple[Part, ...] = ("gemm", "experts")
    return [deployment.form(prefill, part) for prefill in (True, False) for part in parts]


def _least_params(deployment: Deployment) -> float:
    """Return the weights of the layers that the least demanding token, or row, uses."""
    params = deployment.model.active_linear_params()
    if deployment.early_exit:
        params *= min(depth for depth, _ in deployment.early_exit.exits)
    if deployment.drafting:
        params *= deployment.drafting.verified_share
    if deployment.cascade:
        params = min(params, deployment.cascade.small.active_linear_params())
    return params
