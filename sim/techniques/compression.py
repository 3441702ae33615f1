"""Techniques of compression: fewer weights, by pruning, sparsity, a student or shared layers.

They belong to the family ``numbers``, beside the number formats.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from servetwin.sim.catalogue.entry import Count
from servetwin.sim.catalogue.layers import Dense, Experts, FeedForward, Mixer, Recurrence
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.formats import Format
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique

_KeptShare = Annotated[float, Field(gt=0, le=1)]
_BITMAP_BYTES = 1 / 8
# Two bits for each of the two weights that remain of four, per weight.
_INDEX_BYTES = 2 * 2 / 4 / 8


class StructuredPruning(Technique):
    """``kept_heads`` of the heads (with their KV heads) and ``kept_ffn`` of the FFN's width stay.

    What is left is a smaller dense model.
    """

    kept_heads: _KeptShare = 0.75
    kept_ffn: _KeptShare = 0.75

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with the smaller model; raise where a part of a head would be left."""
        model = setup.deployment.model
        pruned = model.with_mixers(lambda mixer: self._mixer(mixer, model)).with_ffns(self._ffn)
        named = pruned.model_copy(update={"name": f"{model.name} pruned"})
        return setup.with_deployment(model=named)

    def _mixer(self, mixer: Mixer, model: ModelShape) -> Mixer:
        if self.kept_heads == 1:
            return mixer
        if isinstance(mixer, Recurrence):
            raise self.refusal(
                f"the recurrent layers of {model.name} have no heads; set kept_heads to 1 and "
                "prune the FFN"
            )
        kinds = [kind for kind in ("heads", "kv_heads") if getattr(mixer, kind, 1) > 1]
        return mixer.model_copy(update={k: self._heads(getattr(mixer, k), model) for k in kinds})

    def _heads(self, heads: int, model: ModelShape) -> int:
        left = heads * self.kept_heads
        if abs(left - round(left)) > 1e-9:
            raise self.refusal(
                f"kept_heads {self.kept_heads:g} of the {heads} (KV) heads of {model.name} leaves "
                f"{left:g}, not a whole number"
            )
        return round(left)

    def _ffn(self, ffn: FeedForward) -> FeedForward:
        if isinstance(ffn, Dense) and not ffn.width:
            return ffn
        widths = {"width": max(1, round(ffn.width * self.kept_ffn))}
        if isinstance(ffn, Experts):
            widths["shared_width"] = round(ffn.shared_width * self.kept_ffn)
        return ffn.model_copy(update=widths)


class WeightPruning(Technique):
    """A technique that sets weights to zero and stores the format of the others differently."""

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with sparse weights in both phases; raise where memory grows."""
        prefill, decode = map(self._sparse, (setup.deployment.prefill, setup.deployment.decode))
        return setup.with_deployment(prefill=prefill, decode=decode)

    @abstractmethod
    def _sparse(self, form: Format) -> Format:
        """Return ``form`` with weights stored sparsely."""


class UnstructuredPruning(WeightPruning):
    """Zeros anywhere; each takes a bit in memory, beside the values of the other weights.

    Each of ``rounds`` drops ``sparsity`` of what the last one left, and retrains (Han 2015).
    Products stay dense, so the weights are laid out again for each of them: no time is won.
    """

    sparsity: Annotated[float, Field(gt=0, lt=1)] = 0.5
    rounds: Count = 1

    def _sparse(self, form: Format) -> Format:
        dense, density = form.bytes_in_memory, (1 - self.sparsity) ** self.rounds
        stored = density * dense + _BITMAP_BYTES
        if stored >= dense:
            raise self.refusal(
                f"{1 - density:.4g} zeros with a bitmap take {stored:.4g} bytes per {form.name} "
                f"weight, not less than {dense:.4g}; sparsity must be above "
                f"{_BITMAP_BYTES / dense:.4g}"
            )
        return replace(
            form, name=f"sparse {form.name}", stored_bytes=stored, lossless=False, grid=None
        )


class SemiStructuredSparsity(WeightPruning):
    """Two of every four weights are zero (2:4): half of the values, an index, twice the peak.

    The weights may have any format. The device must have sparse products (NVIDIA since Ampere, AMD
    since CDNA 3): the other peaks of data sheets are dense, so this cannot be checked.
    """

    def _sparse(self, form: Format) -> Format:
        return replace(
            form,
            name=f"2:4 {form.name}",
            weight_bytes=form.weight_bytes / 2 + _INDEX_BYTES,
            stored_bytes=None,
            compute_share=form.compute_share * 2,
            lossless=False,
            grid=None,
        )


class Distillation(Technique):
    """A smaller model that learned from the large one serves in its place.

    ``student``: a model of the catalogue, or the path of a shape.
    """

    student: str = "tinyllama-1.1b"

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with the student, up to its longest context.

        Raises ``PolicyError`` where the student is not smaller.
        """
        teacher, student = setup.deployment.model, self.model_of("student")
        if student.params() >= teacher.params():
            raise self.refusal(
                f"student {student.name} ({student.params() / 1e9:.2f}e9 weights) is not smaller "
                f"than {teacher.name} ({teacher.params() / 1e9:.2f}e9)"
            )
        longest = min(setup.policies.max_model_len, student.max_model_len)
        return setup.with_deployment(model=student).with_policies(max_model_len=longest)


class WeightSharing(Technique):
    """Every ``layers`` layers have one set of weights, read anew for each of them."""

    layers: Annotated[int, Field(ge=2)] = 2

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with shared weights; raise where ``layers`` does not divide a group."""
        model = setup.deployment.model
        for group in model.layers:
            if group.count % self.layers:
                raise self.refusal(
                    f"{model.name} has {group.count} equal layers, which {self.layers} at a time "
                    "do not divide"
                )
        return setup.with_deployment(weight_sharing=self.layers)
