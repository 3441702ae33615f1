"""How the devices of a server share a model: the widths of each kind, and what does not divide."""

from dataclasses import dataclass

from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.model import ModelShape
from servetwin.workloads.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Parallel:
    """How many devices share the work, and how.

    ``tensor`` splits every product (Megatron, Shoeybi 2019), ``pipeline`` the layers, with
    ``micro_batches`` in flight (GPipe 2019; 0: as many as stages), ``sequence`` the prompt (ring
    attention, Liu 2023; ``zig_zag`` pieces give every rank the same share of a causal prompt),
    ``expert`` the experts, ``data`` the sequences, whose attention has whole copies; each expert is
    then on all devices of a stage over ``expert``. ``link`` None: the device's own. ``lockstep``: a
    batch is that of one of the ``groups``, which step together; else of all, evenly spread.
    """

    tensor: int = 1
    pipeline: int = 1
    micro_batches: int = 0
    sequence: int = 1
    zig_zag: bool = True
    expert: int = 1
    data: int = 1
    link: Link | None = None
    lockstep: bool = False

    @classmethod
    def of(cls, layout: Layout, link: Link | None = None) -> "Parallel":
        """Return the widths of a layout."""
        spread = layout.dp > 1 and layout.pp == 1
        return cls(
            layout.tp, layout.pp, expert=layout.ep, data=layout.dp, link=link, lockstep=spread
        )

    @property
    def layout(self) -> Layout:
        """The widths; sequence parallelism has none of them."""
        data = self.stage_devices // self.tensor // self.sequence
        return Layout(self.tensor, self.pipeline, data, self.expert)

    @property
    def stage_devices(self) -> int:
        """Devices of one pipeline stage: experts are spread over the others', or over more."""
        return max(self.tensor * self.sequence * self.data, self.expert)

    @property
    def expert_ranks(self) -> int:
        """Devices that the weights of all experts are divided by."""
        return max(self.tensor * self.data, self.expert)

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


ONE_DEVICE = Parallel()


def refuse_bad_split(model: ModelShape, parallel: Parallel) -> None:
    """Raise ``PolicyError`` where the model cannot be divided so."""
    for name in ("tensor", "pipeline", "sequence", "expert", "data"):
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
    others = parallel.tensor * parallel.sequence * parallel.data
    if max(others, parallel.expert) % min(others, parallel.expert):
        raise PolicyError(
            f"expert parallel: {parallel.expert} ways and {others} (tensor x sequence x data) ways "
            "do not divide one another"
        )
