"""A model on devices, and how it is run there: all that a roofline needs to know."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Literal

from servetwin.sim.catalogue.hardware import Hardware, Link
from servetwin.sim.catalogue.layers import Experts
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.efficiency import DEFAULT, Efficiency
from servetwin.sim.step_times.roofline.formats import (
    ACTIVATION_BYTES,
    BF16,
    Format,
    stored_weight_bytes,
)
from servetwin.sim.step_times.roofline.step_memory import LargestStep, StepBuffers, StepMemory
from servetwin.workloads.errors import PolicyError

RUNTIME_BYTES = 0.5e9
"""On each device, the driver's context and the workspace of libraries."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """How attention and the small operators run.

    ``flash_attention``: scores never leave the chip (Dao 2022). ``fused``: activations between
    products do not visit memory, and a layer launches ``launches_per_layer`` kernels; not fused,
    twice as many. ``occupancy``: how far the decode attention fills the device: "full" (whatever
    the batch), "heads" (a block per sequence and KV head), or "split" (and per ``split_tokens``
    keys: FlashDecoding 2023). ``synchronised``: the pieces of a softmax share one running maximum,
    which costs a split its reduction and every decode attention ``synchronisation_share`` of its
    time (0: within the achieved efficiency; FlashDecoding++ 2023 does without).
    ``attention_slowdown`` multiplies decode attention: what reading blocks by a table costs.
    """

    flash_attention: bool = True
    fused: bool = True
    launches_per_layer: int = 8
    occupancy: Literal["full", "heads", "split"] = "full"
    split_tokens: int = 256
    synchronised: bool = True
    synchronisation_share: float = 0.0
    attention_slowdown: float = 1.0


IDEAL_KERNELS = Kernels(launches_per_layer=0)
"""Kernels whose launch takes no time."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """How many devices share the work, and how.

    ``tensor`` splits every product (Megatron, Shoeybi 2019), ``pipeline`` the layers, with
    ``micro_batches`` in flight (GPipe 2019; 0: as many as stages), ``sequence`` the prompt (ring
    attention, Liu 2023; ``zig_zag`` pieces give every rank the same share of a causal prompt),
    ``expert`` the experts. ``link`` None: the device's own. ``lockstep``: a batch is that of one of
    the ``groups``, which step together; else of all of them, evenly spread.
    """

    tensor: int = 1
    pipeline: int = 1
    micro_batches: int = 0
    sequence: int = 1
    zig_zag: bool = True
    expert: int = 1
    link: Link | None = None
    lockstep: bool = False

    @property
    def stage_devices(self) -> int:
        """Devices of one pipeline stage: experts are spread over the others', or over more."""
        return max(self.tensor * self.sequence, self.expert)

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.stage_devices * self.pipeline

    @property
    def groups(self) -> int:
        """Whole copies of all that is no expert; each serves sequences of its own."""
        return self.stage_devices // (self.tensor * self.sequence)

    def spread(self, sequences: float) -> float:
        """Return how many of the groups have work."""
        return max(1.0, min(float(self.groups), sequences))

    def in_flight(self, sequences: float) -> float:
        """Return the micro-batches in flight, not more than there are sequences.

        Numbers of sequences are expectations, here and below.
        """
        return max(1.0, min(self.micro_batches or self.pipeline, sequences))

    def busy_groups(self, sequences: float) -> float:
        """Return the groups of devices that have a sequence of each micro-batch."""
        return self.spread(sequences / self.in_flight(sequences))

    def pieces(self, sequences: float) -> float:
        """Return the pieces of a batch: its micro-batches, in each group of devices."""
        return self.in_flight(sequences) * self.busy_groups(sequences)

    def stage_times(self, micro_batches: float, has_prefill: bool) -> float:
        """Return the times of a stage until all micro-batches are through.

        max(p, m) in steady state, m + p - 1 with a prompt (the bubble of GPipe).
        """
        if has_prefill:
            return micro_batches + self.pipeline - 1
        return max(float(self.pipeline), micro_batches)

    def path_share(self, sequences: float, has_prefill: bool) -> float:
        """Return the share of the attention to all sequences that lies on the path of a step.

        That is one over the stages that are busy, and over the groups that have a sequence.
        """
        micro_batches = self.in_flight(sequences)
        stage_times = self.stage_times(micro_batches, has_prefill)
        return stage_times / (micro_batches * self.pipeline) / self.busy_groups(sequences)


@dataclass(frozen=True, slots=True)
class Offload:
    """Weights and keys kept beside the device and streamed to it in every step (FlexGen 2023).

    ``resident_weights`` and ``resident_kv`` are the shares that stay on the device (of the weights
    of the target, a draft model apart), ``bytes_per_s`` None is the device's host link.
    ``prefetch``: a stream overlaps with the step's computing, drafting included.
    """

    resident_weights: float = 1.0
    resident_kv: float = 1.0
    bytes_per_s: float | None = None
    prefetch: bool = True


@dataclass(frozen=True, slots=True)
class EarlyExit:
    """Tokens that leave the layers early: (share of the layers, probability), summing to one.

    Skipped layers still write their keys and values (CALM, Schuster 2022).
    """

    exits: tuple[tuple[float, float], ...]

    def mean_depth(self) -> float:
        """Return the expected share of the layers that a token computes."""
        return sum(depth * probability for depth, probability in self.exits)

    def read_depth(self, rows: float) -> float:
        """Return the expected share of the layers that a step reads: that of its deepest token."""
        read, above, shallow = 0.0, 0.0, 0.0
        for depth, probability in sorted(self.exits):
            deeper = 1 - shallow**rows if rows else 0.0
            read += (depth - above) * deeper
            above, shallow = depth, min(1.0, shallow + probability)
        return read


@dataclass(frozen=True, slots=True)
class Cascade:
    """A smaller model beside the large one; ``small_share`` of the tokens are its (FrugalGPT)."""

    small: ModelShape
    small_share: float


@dataclass(frozen=True, slots=True)
class Drafting:
    """A drafter: ``model``, in consecutive steps of ``step_rows`` rows of a sequence each.

    A chain has a row per step, a tree as many as its level before. ``placement``: on the same
    device (draft, then verify), on another ``hardware`` before it, or on another one ``overlapped``
    with the verification of the last drafts. ``is_part``: the model is a part of the target, with
    no weights or keys of its own. ``context_tokens`` bounds what drafting reads. ``form`` is the
    format of its weights (None: those of the target). Weights that are not ``resident`` lie on the
    host, and every drafting step streams them. ``step_shares``: the probability of each step that
    a sequence still drafts in it (none: 1).
    """

    model: ModelShape
    step_rows: tuple[int, ...]
    placement: Literal["device", "other", "overlapped"] = "device"
    hardware: Hardware | None = None
    is_part: bool = False
    context_tokens: int | None = None
    form: Format | None = None
    resident: bool = True
    step_shares: tuple[float, ...] = ()

    @property
    def verified_share(self) -> float:
        """Return the expected part of the rows of a pass whose drafts were made."""
        if not self.step_shares:
            return 1.0
        return (1 + sum(self.step_shares)) / (1 + len(self.step_shares))

    @property
    def takes_memory(self) -> bool:
        """Whether its weights and keys lie beside the target's."""
        return self.placement == "device" and not self.is_part


@dataclass(frozen=True)
class Deployment:
    """``model`` on ``hardware``; ``prefill`` and ``decode`` formats may differ."""

    model: ModelShape
    hardware: Hardware
    efficiency: Efficiency = DEFAULT
    prefill: Format = BF16
    decode: Format = BF16
    kv_element_bytes: float = 2.0
    kernels: Kernels = Kernels()
    parallel: Parallel = Parallel()
    offload: Offload = Offload()
    kv_cache: bool = True
    early_exit: EarlyExit | None = None
    cascade: Cascade | None = None
    drafting: Drafting | None = None
    weight_sharing: int = 1
    """Layers that have the same weights (ALBERT): memory, not work, is divided by it."""
    memory_share: float = 1.0
    """The share of the device's memory that the server may take."""

    def __post_init__(self) -> None:
        _refuse_bad_split(self.model, self.parallel)

    @cached_property
    def link(self) -> Link:
        """Between the devices."""
        hardware = self.hardware
        return self.parallel.link or Link(hardware.link_latency_s, hardware.link_bytes_per_s)

    def form(self, has_prefill: bool) -> Format:
        """Return the format of a step, with a prompt in it or not."""
        return self.prefill if has_prefill else self.decode

    @property
    def host_bytes_per_s(self) -> float:
        """Bytes per second between device and host."""
        return self.offload.bytes_per_s or self.hardware.host_link_bytes_per_s

    @property
    def name(self) -> str:
        """A short label."""
        devices = self.parallel.devices
        count = f"{devices} x " if devices > 1 else ""
        return f"{self.model.name} on {count}{self.hardware.name}"

    def weight_bytes(self) -> float:
        """Return the bytes of the weights of all models, whole, over all devices of a replica."""
        return self.target_weight_bytes() + self.draft_weight_bytes()

    def target_weight_bytes(self) -> float:
        """Return the bytes of the weights of all models but the draft model."""
        weights = self.model.params()
        if self.cascade:
            weights += self.cascade.small.params()
        shared = self.model.linear_params() * (1 - 1 / self.weight_sharing)
        return (weights - shared) * stored_weight_bytes(self.prefill, self.decode)

    def draft_weight_bytes(self) -> float:
        """Return the bytes of the weights of a draft model of its own, on the device or host."""
        if not self.drafting or not self.drafting.takes_memory:
            return 0.0
        form = self.drafting.form
        formats = (form, form) if form else (self.prefill, self.decode)
        return self.drafting.model.params() * stored_weight_bytes(*formats)

    def resident_weight_bytes(self) -> float:
        """Return the bytes of weights on the devices, every copy counted."""
        devices, parallel = self.parallel.stage_devices, self.parallel
        experts = self._expert_bytes()
        others = (self.target_weight_bytes() - experts) * devices / parallel.tensor
        experts *= devices / max(parallel.tensor, parallel.expert)
        resident = (others + experts) * self.offload.resident_weights
        if self.drafting and self.drafting.resident:
            resident += self.draft_weight_bytes() * devices / parallel.tensor
        return resident

    def _expert_bytes(self) -> float:
        """Return the bytes of the weights of experts."""
        per_weight = stored_weight_bytes(self.prefill, self.decode)
        params = sum(
            g.count * g.ffn.experts * g.ffn.expert_params(self.model.width)
            for g in self.model.layers
            if isinstance(g.ffn, Experts)
        )
        return params * per_weight / self.weight_sharing

    def kv_bytes_per_token(self) -> float:
        """Return the bytes of keys and values of one token, those of the draft model included."""
        elements = self.model.kv_elements_per_token()
        if self.cascade:
            share = self.cascade.small_share
            small = self.cascade.small.kv_elements_per_token()
            elements = share * small + (1 - share) * elements
        if self.drafting and self.drafting.takes_memory:
            elements += self.drafting.model.kv_elements_per_token()
        return elements * self.kv_element_bytes * self.kv_replication * self.offload.resident_kv

    @cached_property
    def kv_replication(self) -> float:
        """How often a token's keys and values are stored: tensor ranks beyond the KV heads."""
        tensor = self.parallel.tensor
        groups = [g.mixer.kv_groups() for g in self.model.layers if g.mixer.kv_elements()]
        heads = min(groups, default=1)
        return tensor * ceil(heads / tensor) / heads

    def usable_bytes(self) -> float:
        """Return the bytes that the server may take, without those of the runtime."""
        each = self.hardware.memory_bytes * self.memory_share - RUNTIME_BYTES
        return each * self.parallel.devices

    def require_room_for_weights(self) -> None:
        """Raise ``PolicyError`` that says by how much the weights do not fit."""
        devices, room = self.parallel.devices, self.usable_bytes()
        weights = self.resident_weight_bytes()
        if weights >= room:
            raise PolicyError(
                f"{self.name}: {weights / 1e9:.1f} GB of {self.decode.name} weights do not fit the "
                f"{room / 1e9:.1f} GB that may be used ({self.memory_share:.0%} of {devices} x "
                f"{self.hardware.memory_bytes / 1e9:.0f} GB, less {RUNTIME_BYTES / 1e9:g} GB a "
                f"device for its runtime): {(weights - room) / 1e9:.1f} GB too much; use more "
                "devices, a smaller format or offloading"
            )

    def step_memory(self, step: LargestStep) -> StepMemory:
        """Return the tensors that live on one device at the peak of a step."""
        kernels, parallel = self.kernels, self.parallel
        shared = replace(step, rows=step.rows / parallel.sequence)
        buffers = StepBuffers(
            ACTIVATION_BYTES, kernels.fused, kernels.flash_attention, parallel.tensor
        )
        return buffers.peak(self.model, shared)

    def step_bytes(self, step: LargestStep) -> float:
        """Return the bytes of a step on all devices, with the waste of their allocators."""
        peak = self.step_memory(step)
        return (peak.allocated_bytes + peak.fragmentation_bytes) * self.parallel.devices


def _refuse_bad_split(model: ModelShape, parallel: Parallel) -> None:
    for name in ("tensor", "pipeline", "sequence", "expert"):
        if getattr(parallel, name) < 1:
            raise PolicyError(f"{name} parallel: {getattr(parallel, name)} ways; at least 1")
    for group in model.layers:
        heads = getattr(group.mixer, "heads", 0)
        if heads % parallel.tensor:
            raise PolicyError(
                f"tensor parallel: {parallel.tensor} ways do not divide the {heads} heads of "
                f"{model.name}"
            )
    if parallel.lockstep and parallel.pipeline * parallel.sequence > 1:
        raise PolicyError("attention data parallel: not with pipeline or sequence parallel")
    if parallel.pipeline > model.layer_count:
        raise PolicyError(
            f"pipeline parallel: {parallel.pipeline} stages for {model.layer_count} layers"
        )
    experts = max((getattr(g.ffn, "experts", 0) for g in model.layers), default=0)
    if parallel.expert > 1 and (not experts or experts % parallel.expert):
        has = f"{experts} experts" if experts else "no experts"
        raise PolicyError(f"expert parallel: {parallel.expert} ways, but {model.name} has {has}")
    others = parallel.tensor * parallel.sequence
    if max(others, parallel.expert) % min(others, parallel.expert):
        raise PolicyError(
            f"expert parallel: {parallel.expert} ways and {others} (tensor x sequence) ways do not "
            "divide one another"
        )
