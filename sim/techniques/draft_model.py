"""Decoding with a draft model: which one, on what."""

from typing import Literal

from sim.shapes.catalogue import find_hardware, find_model
from sim.shapes.hardware import Hardware
from sim.shapes.model import ModelShape
from sim.step_times.roofline.deployment import Drafting
from sim.techniques.drafted_decoding import DraftedDecoding
from sim.techniques.setup import Setup
from workloads.errors import PolicyError


class DraftModelDecoding(DraftedDecoding):
    """``draft`` names a model of the catalogue; ``any_vocabulary`` lets it have another one.

    ``placement``: on the target's ``device`` (draft, then verify), on an ``other`` one before it,
    or there ``overlapped`` with the verification of the last drafts. ``draft_hardware`` names the
    other device; None: one like the target's.
    """

    kind = "system"
    lossless = True

    draft: str = "llama-68m"
    any_vocabulary: bool = False
    placement: Literal["device", "other", "overlapped"] = "device"
    draft_hardware: str | None = None

    def _drafting(self, setup: Setup, step_rows: tuple[int, ...]) -> Drafting:
        model, target = find_model(self.draft), setup.deployment.model
        self._refuse_misfit(model, target)
        return Drafting(model, step_rows, self.placement, self._hardware())

    def _hardware(self) -> Hardware | None:
        if self.draft_hardware is None:
            return None
        if self.placement == "device":
            raise PolicyError(
                f"{self.name}: draft_hardware {self.draft_hardware} needs placement=other or "
                "placement=overlapped; placement=device is the target's own"
            )
        return find_hardware(self.draft_hardware)

    def _refuse_misfit(self, draft: ModelShape, target: ModelShape) -> None:
        if draft.params() > target.params():
            raise PolicyError(
                f"{self.name}: the draft {draft.name} has {draft.params():.3g} weights, more than "
                f"the {target.params():.3g} of {target.name}; a draft must be the smaller"
            )
        if draft.vocabulary != target.vocabulary and not self.any_vocabulary:
            raise PolicyError(
                f"{self.name}: {draft.name} has {draft.vocabulary} tokens in its vocabulary, "
                f"{target.name} {target.vocabulary}; draft with a model of the same family, or set "
                "any_vocabulary=true if drafts are translated"
            )
