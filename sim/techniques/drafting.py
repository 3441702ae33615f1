"""Techniques that draft tokens and verify them: by a small model, as a tree, or by itself.

Symbols in the formulas: a acceptance probability, g drafts, s and q shares of the confident tokens.
"""

from dataclasses import replace
from itertools import accumulate
from math import sqrt
from operator import mul
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from servetwin.sim.catalogue.catalogue import find_hardware
from servetwin.sim.catalogue.entry import Count, Positive, Share
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.catalogue.servers.acceptance import read_acceptance
from servetwin.sim.step_times.acceptance import Chain, Measured, Tree
from servetwin.sim.step_times.roofline.deployment import Deployment, Drafting
from servetwin.sim.step_times.roofline.formats import FORMATS, Format
from servetwin.sim.techniques.decoding import DraftedDecoding, PassCount, split_by_x
from servetwin.sim.techniques.quantisation import format_on_device
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError, require_name

# A token of entropy H is accepted with probability 1 - sqrt(0.2 H) or more (AdaEDL 2024).
ENTROPY_FACTOR = 0.2


def _measured(given: Any) -> Any:
    """Return the shares that ``0.8x0.6x0.5`` names, or that a file of a server counts."""
    if not isinstance(given, str):
        return given
    return read_acceptance(Path(given)) if isfile(given) else split_by_x(given)


class ChainDecoding(DraftedDecoding):
    """A technique that drafts ``drafts`` tokens in a row, or fewer.

    Each is accepted with probability ``alpha`` on average if all before it were. Drafting ends
    early behind a token of which the drafter is less sure than ``least_confidence``, or whose
    distribution has an entropy above ``most_entropy`` (nats). ``reach`` has the shares of passes
    that accept at least 1, 2, ... drafts, in the place of ``alpha``: ``0.8x0.6x0.5``, or a file of
    vLLM's metrics or log.
    """

    alpha: Share = 0.7
    drafts: PassCount = 4
    least_confidence: Share = 0.0
    most_entropy: Annotated[float | None, Field(ge=0)] = None
    reach: Annotated[tuple[Share, ...] | None, BeforeValidator(_measured), Field(min_length=1)] = (
        None
    )

    def _law(self) -> Chain | Measured:
        """Return the acceptance of a pass; raise where two conditions end the drafting."""
        least = self.least_confidence
        if self.reach is not None:
            if least or self.most_entropy is not None:
                raise self.refusal("reach counts whole passes; leave out what ends the drafting")
            if list(self.reach) != sorted(self.reach, reverse=True):
                raise self.refusal(f"reach: {self.reach} must fall: a draft needs those before it")
            return Measured.of(self.reach, self.drafts)
        if self.most_entropy is not None:
            if least:
                raise self.refusal(
                    f"most_entropy {self.most_entropy:g} and least_confidence {least:g} both end "
                    "the drafting; set one of them"
                )
            least = max(0.0, 1 - sqrt(ENTROPY_FACTOR * self.most_entropy))
        return Chain(self.alpha, self.drafts, least)


class DraftModelDecoding(DraftedDecoding):
    """A technique that drafts with a small model.

    ``draft`` names a model of the catalogue; ``any_vocabulary`` lets it have another vocabulary.
    ``placement``: on the ``device`` of the target (draft, then verify), on an ``other`` one before
    it, or there ``overlapped`` with the verification of the last drafts. ``draft_hardware`` names
    the other device; None: one like that of the target. ``draft_format``: that of its weights
    (None: of the target's). ``draft_memory``: its weights lie on the device, or on the ``host`` and
    are streamed for every draft. ``resident_gb`` (10^9 bytes) of the target's weights stay on the
    device, every pass streams the others at ``gb_per_s``; None: all stay, and the host link's.
    """

    draft: str = "llama-68m"
    any_vocabulary: bool = False
    placement: Literal["device", "other", "overlapped"] = "device"
    draft_hardware: str | None = None
    draft_format: str | None = None
    draft_memory: Literal["device", "host"] = "device"
    resident_gb: Annotated[float | None, Field(ge=0)] = None
    gb_per_s: Positive | None = None

    def _drafting(self, setup: Setup, step_rows: tuple[int, ...]) -> Drafting:
        model, hardware = self.model_of("draft"), self._hardware()
        self._refuse_misfit(model, setup.deployment.model)
        if self.draft_memory == "host" and self.placement != "device":
            raise self.refusal(
                f"draft_memory=host needs placement=device; with placement={self.placement} "
                "another device has the draft model"
            )
        form = self._form(model, hardware or setup.deployment.hardware)
        resident = self.draft_memory == "device"
        return Drafting(model, step_rows, self.placement, hardware, form=form, resident=resident)

    def _form(self, model: ModelShape, hardware: Hardware) -> Format | None:
        if self.draft_format is None:
            return None
        unknown = f"{self.name}: draft_format: unknown"
        require_name(self.draft_format, FORMATS, unknown, PolicyError)
        return format_on_device(self, FORMATS[self.draft_format], hardware, model)

    def _placed(self, setup: Setup) -> Setup:
        """Return ``setup`` with the other weights of the target on the host.

        Raises ``PolicyError`` where what stays on the device does not fit there.
        """
        if self.gb_per_s is not None:
            setup = setup.with_offload(bytes_per_s=self.gb_per_s * 1e9)
        if self.resident_gb is None:
            return setup
        share = min(1.0, self.resident_gb * 1e9 / setup.deployment.target_weight_bytes())
        placed = setup.with_offload(resident_weights=share)
        self._refuse_overfull(placed.deployment)
        return placed

    def _refuse_overfull(self, deployment: Deployment) -> None:
        room = deployment.usable_bytes()
        if deployment.resident_weight_bytes() < room:
            return
        draft = deployment.draft_weight_bytes() if self.draft_memory == "device" else 0.0
        advice = f"resident_gb must be below {(room - draft) / 1e9:.4g}"
        if draft >= room:
            advice = "set draft_memory=host"
        raise self.refusal(
            f"resident_gb {self.resident_gb:g} of {deployment.model.name} and {draft / 1e9:.4g} GB "
            f"of {self.draft} do not fit the {room / 1e9:.4g} GB that may be used of "
            f"{deployment.hardware.name}; {advice}"
        )

    def _hardware(self) -> Hardware | None:
        if self.draft_hardware is None:
            return None
        if self.placement == "device":
            raise self.refusal(
                f"draft_hardware {self.draft_hardware} needs placement=other or "
                "placement=overlapped; placement=device is the target's own"
            )
        return find_hardware(self.draft_hardware)

    def _refuse_misfit(self, draft: ModelShape, target: ModelShape) -> None:
        if draft.params() > target.params():
            raise self.refusal(
                f"the draft {draft.name} has {draft.params():.3g} weights, more than the "
                f"{target.params():.3g} of {target.name}; a draft must be the smaller"
            )
        if draft.vocabulary != target.vocabulary and not self.any_vocabulary:
            raise self.refusal(
                f"{draft.name} has {draft.vocabulary} tokens in its vocabulary, {target.name} "
                f"{target.vocabulary}; draft with a model of the same family, or set "
                "any_vocabulary=true if drafts are translated"
            )


class SpeculativeDecoding(ChainDecoding, DraftModelDecoding):
    """A small model drafts ``drafts`` tokens in a row, the target verifies them in one pass.

    Each is accepted with probability ``alpha`` if all before it were. Drafting ends early behind a
    token of which the draft model is less sure than ``least_confidence``, or whose distribution has
    an entropy above ``most_entropy`` (nats).
    """

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with drafts; raise where the draft model does not fit the target."""
        law = self._law()
        drafting = replace(self._drafting(setup, (1,) * self.drafts), step_shares=law.step_shares)
        return self._placed(self._passing(setup, law, drafting))


class TreeSpeculation(DraftModelDecoding):
    """``widths`` proposals below each token of a level: ``3x2x1x1`` is 3 + 6 + 6 + 6 of them.

    One masked pass verifies all. A proposal is right with probability ``alpha`` whatever its
    siblings are, which is optimistic.
    """

    alpha: Share = 0.6
    widths: Annotated[tuple[PassCount, ...], BeforeValidator(split_by_x), Field(min_length=1)] = (
        3, 2, 1, 1
    )  # fmt: skip

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with trees; raise where the draft model does not fit the target."""
        step_rows = (1, *accumulate(self.widths[:-1], mul))  # a level is drafted from the one above
        drafting = self._drafting(setup, step_rows)
        return self._placed(self._passing(setup, Tree(self.alpha, self.widths), drafting))


class SelfSpeculation(ChainDecoding):
    """The model drafts for itself, by ``layer_share`` of its layers.

    Drafts see ``context_tokens`` tokens, the first and the last ones as in streaming (None: all).
    Weights and keys are those of the target; the verification reads everything.
    """

    alpha: Share = 0.8
    layer_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    context_tokens: Count | None = None

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with drafts; raise where a draft would cost as much as a token."""
        if self.layer_share == 1 and self.context_tokens is None:
            raise self.refusal(
                "a draft of all layers and the whole context costs as much as a token; set "
                "layer_share below 1 or context_tokens"
            )
        drafter = self._drafter(setup.deployment.model)
        setup.with_deployment(model=drafter)  # refuses more pipeline stages than it has layers
        law = self._law()
        drafting = Drafting(
            drafter,
            (1,) * self.drafts,
            is_part=True,
            context_tokens=self.context_tokens,
            step_shares=law.step_shares,
        )
        return self._passing(setup, law, drafting)

    def _drafter(self, model: ModelShape) -> ModelShape:
        """Return ``model`` with its share of each kind of layer, at least one of each."""
        share = self.layer_share
        return model.with_layers(
            lambda g: [g.model_copy(update={"count": max(1, round(g.count * share))})]
        )
