"""A model on devices, and how it is run there: all that a roofline needs to know."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import ClassVar, Literal

from servetwin.sim.catalogue.hardware import Hardware, Link
from servetwin.sim.catalogue.layers import Attention, Dense, Experts
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.step_times.roofline.efficiency import DEFAULT, Efficiency
from servetwin.sim.step_times.roofline.formats import (
    ACTIVATION_BYTES,
    BF16,
    KV_FORMATS,
    Format,
    on_device,
    stored_weight_bytes,
)
from servetwin.sim.step_times.roofline.parallel import ONE_DEVICE, Parallel, refuse_bad_split
from servetwin.sim.step_times.roofline.step_memory import (
    ALL_MEMORY,
    LargestStep,
    ServerMemory,
    StepBuffers,
    StepMemory,
)
from servetwin.workloads.errors import PolicyError

_COUNTS = tuple(1 << n for n in range(1, 11))


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


# Kernels whose launch takes no time.
IDEAL_KERNELS = Kernels(launches_per_layer=0)


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


@dataclass(frozen=True, slots=True)
class Adapters:
    """LoRA adapters of ``rank`` on the projections and the dense FFN of each layer (Hu 2021).

    ``slots`` of them are on the devices. A product of its two matrices is two launches: for
    queries, keys and values together, the output, and the two sides of the FFN (Punica 2023).
    """

    rank: int
    slots: int
    launches_per_layer: ClassVar[int] = 8

    def layer_params(self, group: LayerGroup, width: int) -> float:
        """Return the numbers of one adapter in a layer: rank x (inputs + outputs) a product."""
        ends, mixer, ffn = 0.0, group.mixer, group.ffn
        if isinstance(mixer, Attention):
            queries, keys = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
            ends += 2 * (width + queries) + 2 * (width + keys) / mixer.kv_sharing
        if isinstance(ffn, Dense):
            ends += ffn.matrices * (width + ffn.width)
        return self.rank * ends

    def stored_bytes(self, model: ModelShape) -> float:
        """Return the bytes of one adapter, in 16 bits."""
        params = (g.count * self.layer_params(g, model.width) for g in model.layers)
        return ACTIVATION_BYTES * sum(params)


# A part of the weights that a checkpoint may have in a format of its own; the embedding is of the
# head.
Part = Literal["gemm", "experts", "head"]


@dataclass(frozen=True)
class Deployment:
    """``model`` on ``hardware``; ``prefill`` and ``decode`` formats may differ.

    Where these are bf16, the weights have the formats of the checkpoint, and so have keys and
    values of 2 bytes.
    """

    model: ModelShape
    hardware: Hardware
    efficiency: Efficiency = DEFAULT
    prefill: Format = BF16
    decode: Format = BF16
    kv_element_bytes: float = 2.0
    kernels: Kernels = Kernels()
    parallel: Parallel = ONE_DEVICE
    offload: Offload = Offload()
    kv_cache: bool = True
    early_exit: EarlyExit | None = None
    cascade: Cascade | None = None
    drafting: Drafting | None = None
    adapters: Adapters | None = None
    weight_sharing: int = 1
    """Layers that have the same weights (ALBERT): memory, not work, is divided by it."""
    memory: ServerMemory = ALL_MEMORY
    """What the server takes of the memory of its devices."""

    def __post_init__(self) -> None:
        refuse_bad_split(self.model, self.parallel)
        if self.kv_element_bytes == KV_FORMATS["bf16"]:
            kv_bytes = KV_FORMATS[self.model.quantisation.kv]
            object.__setattr__(self, "kv_element_bytes", kv_bytes)
        self.form(True), self.form(False)

    @cached_property
    def link(self) -> Link:
        """Between the devices."""
        hardware = self.hardware
        return self.parallel.link or Link(hardware.link_latency_s, hardware.link_bytes_per_s)

    def form(self, has_prefill: bool, part: Part = "gemm") -> Format:
        """Return the format of a part of the weights in a step, with a prompt in it or not."""
        chosen = self.prefill if has_prefill else self.decode
        return self._published[part] if chosen == BF16 else chosen

    @cached_property
    def _published(self) -> dict[Part, Format]:
        """The formats of the checkpoint, as the device runs them."""
        formats, hardware = self.model.quantisation, self.hardware
        gemm, experts = (on_device(form, hardware) for form in (formats.gemm, formats.experts))
        return {"gemm": gemm, "experts": experts, "head": BF16}

    def _stored_bytes(self, part: Part) -> float:
        """Return the bytes of a weight in memory."""
        return stored_weight_bytes(self.form(True, part), self.form(False, part))

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
        each, experts = self._stored_bytes("gemm"), self._expert_params()
        embedded = self.model.params() - self.model.linear_params()
        others = embedded * (self._stored_bytes("head") - each)
        others += experts * (self._stored_bytes("experts") - each)
        return (weights - shared) * each + others

    def draft_weight_bytes(self) -> float:
        """Return the bytes of the weights of a draft model of its own, on the device or host."""
        if not self.drafting or not self.drafting.takes_memory:
            return 0.0
        form = self.drafting.form
        formats = (form, form) if form else (self.form(True), self.form(False))
        return self.drafting.model.params() * stored_weight_bytes(*formats)

    def resident_weight_bytes(self) -> float:
        """Return the bytes of weights on the devices, every copy counted."""
        devices, parallel = self.parallel.stage_devices, self.parallel
        experts = self._expert_params() * self._stored_bytes("experts")
        others = (self.target_weight_bytes() - experts) * devices / parallel.tensor
        experts *= devices / parallel.expert_ranks
        resident = (others + experts) * self.offload.resident_weights
        if self.drafting and self.drafting.resident:
            resident += self.draft_weight_bytes() * devices / parallel.tensor
        if self.adapters:
            resident += self.adapters.slots * self.adapters.stored_bytes(self.model)
        return resident

    def _expert_params(self) -> float:
        """Return the number of weights of experts in memory."""
        params = sum(
            g.count * g.ffn.experts * g.ffn.expert_params(self.model.width)
            for g in self.model.layers
            if isinstance(g.ffn, Experts)
        )
        return params / self.weight_sharing

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
        each = self.memory.device_bytes(self.hardware) * self.memory.share
        return (each - self.memory.runtime_bytes) * self.parallel.devices

    def require_room_for_weights(self) -> None:
        """Raise ``PolicyError`` that says by how much the weights do not fit."""
        devices, room = self.parallel.devices, self.usable_bytes()
        weights = self.resident_weight_bytes()
        if weights >= room:
            raise PolicyError(
                f"{self.name}: {weights / 1e9:.1f} GB of {self._weights_name} weights do not fit "
                f"the {room / 1e9:.1f} GB that may be used ({self.memory.share:.0%} of {devices} x "
                f"{self.memory.device_bytes(self.hardware) / 1e9:.0f} GB, less "
                f"{self.memory.runtime_bytes / 1e9:g} GB a device for its runtime): "
                f"{(weights - room) / 1e9:.1f} GB too much; use "
                f"{self._devices_that_fit()} devices (--layout), a smaller format or offloading"
            )

    def _devices_that_fit(self) -> int:
        """Return the power of two of devices whose memory takes the weights, each once."""
        each = self.usable_bytes() / self.parallel.devices
        needed = self.weight_bytes() / each if each > 0 else float("inf")
        return next((n for n in _COUNTS if n > needed), _COUNTS[-1])

    @property
    def _weights_name(self) -> str:
        """The formats of the weights, that of most first."""
        parts: tuple[Part, ...] = ("experts", "gemm") if self._expert_params() else ("gemm",)
        return " and ".join(dict.fromkeys(self.form(False, part).name for part in parts))

    def step_memory(self, step: LargestStep) -> StepMemory:
        """Return the tensors that live on one device at the peak of a step."""
        kernels, parallel = self.kernels, self.parallel
        shared = replace(step, rows=step.rows / parallel.sequence)
        if self.memory.is_profiled:
            shared = replace(shared, draws=False)
        buffers = StepBuffers(
            ACTIVATION_BYTES, kernels.fused, kernels.flash_attention, parallel.tensor,
            kept=self.memory.kept_rows,
        )  # fmt: skip
        return buffers.peak(self.model, shared)

    def step_bytes(self, step: LargestStep) -> float:
        """Return the bytes of a step on all devices, with the waste of their allocators."""
        if not self.memory.holds_steps:
            return 0.0
        peak = self.step_memory(step)
        return (peak.allocated_bytes + peak.fragmentation_bytes) * self.parallel.devices
