"""Techniques of decoding: several tokens from one pass, fewer layers, a smaller model.

Symbols in the formulas: a acceptance probability, g drafts, m output tokens, k accepted tokens of a
block, N tokens and K passes of a diffusion block, q share of the small model.
"""

from dataclasses import replace
from itertools import accumulate
from math import isclose
from operator import mul
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sim.shapes.catalogue import find_hardware, find_model
from sim.shapes.frozen_model import Count, Share
from sim.shapes.hardware import Hardware
from sim.shapes.model import ModelShape
from sim.step_times.acceptance import Acceptance, Blockwise, Chain, Diffusion, Tree
from sim.step_times.roofline.deployment import Cascade, Drafting, EarlyExit
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique

_BATCHING = "continuous"
_SEVERAL_TOKENS = "not modelled together with passes of several tokens"


def _split_by_x(given: Any) -> Any:
    """Return the parts of ``3x2x1``: on a command line a comma ends the parameter."""
    return given.split("x") if isinstance(given, str) else given


class DraftedDecoding(Technique):
    """A technique whose passes compute several rows of a sequence and may yield several tokens."""

    family = "decoding"
    chooses = "how many tokens a pass yields"

    def _passing(
        self, setup: Setup, acceptance: Acceptance, drafting: Drafting | None = None
    ) -> Setup:
        """Return ``setup`` whose decodes verify what ``drafting`` proposes.

        ``acceptance`` says how many tokens come out of a pass. The token budget of a step grows by
        the drafts, so that prompts find as much room as before. Raises ``PolicyError`` where drafts
        make no sense.
        """
        self._refuse_other_decoding(setup)
        drafts, policies = acceptance.rows - 1, setup.policies
        drafted = setup.with_deployment(drafting=drafting).with_policies(
            batching="speculative",
            draft_rows=drafts,
            prompt_token=acceptance.prompt_token,
            token_budget=policies.token_budget + policies.max_seqs * drafts,
        )
        return replace(drafted, acceptance=acceptance)

    def _refuse_other_decoding(self, setup: Setup) -> None:
        batching, deployment = setup.policies.batching, setup.deployment
        if batching != _BATCHING:
            raise self.refusal(
                f"needs batching: {_BATCHING}, whose decodes it replaces, not {batching}"
            )
        for other, is_there in (
            ("a server without a KV cache", not deployment.kv_cache),
            ("a cascade of models", deployment.cascade is not None),
            ("early exit", deployment.early_exit is not None),
        ):
            if is_there:
                raise self.refusal(f"not modelled together with {other}")


class DraftModelDecoding(DraftedDecoding):
    """A technique that drafts with a small model.

    ``draft`` names a model of the catalogue; ``any_vocabulary`` lets it have another vocabulary.
    ``placement``: on the ``device`` of the target (draft, then verify), on an ``other`` one before
    it, or there ``overlapped`` with the verification of the last drafts. ``draft_hardware`` names
    the other device; None: one like that of the target.
    """

    kind = "system"
    lossless = True

    draft: str = "llama-68m"
    any_vocabulary: bool = False
    placement: Literal["device", "other", "overlapped"] = "device"
    draft_hardware: str | None = None

    def _drafting(self, setup: Setup, step_rows: tuple[int, ...]) -> Drafting:
        model = find_model(self.draft)
        self._refuse_misfit(model, setup.deployment.model)
        return Drafting(model, step_rows, self.placement, self._hardware())

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


class SpeculativeDecoding(DraftModelDecoding):
    """A small model drafts ``drafts`` tokens in a row, the target verifies them in one pass.

    Each is accepted with probability ``alpha`` if all before it were.
    """

    name = "speculative"
    formula = "(1 - a^(g + 1)) / (1 - a) tokens in g t_draft + t_verify(g + 1)"
    source = "Leviathan 2023; Chen 2023"

    alpha: Share = 0.7
    drafts: Count = 4

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with drafts; raise where the draft model does not fit the target."""
        drafting = self._drafting(setup, (1,) * self.drafts)
        return self._passing(setup, Chain(self.alpha, self.drafts), drafting)


class TreeSpeculation(DraftModelDecoding):
    """``widths`` proposals below each token of a level: ``3x2x1x1`` is 3 + 6 + 6 + 6 of them.

    One masked pass verifies all. A proposal is right with probability ``alpha`` whatever its
    siblings are, which is optimistic.
    """

    name = "tree-speculation"
    formula = "1 + sum over levels of prod (1 - (1 - a)^w) tokens; all nodes are verified"
    source = "SpecInfer (Miao 2024)"

    alpha: Share = 0.6
    widths: Annotated[tuple[Count, ...], BeforeValidator(_split_by_x), Field(min_length=1)] = (
        3, 2, 1, 1
    )  # fmt: skip

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with trees; raise where the draft model does not fit the target."""
        step_rows = (1, *accumulate(self.widths[:-1], mul))  # a level is drafted from the one above
        drafting = self._drafting(setup, step_rows)
        return self._passing(setup, Tree(self.alpha, self.widths), drafting)


class SelfSpeculation(DraftedDecoding):
    """The model drafts for itself, by ``layer_share`` of its layers.

    Drafts see ``context_tokens`` tokens, the first and the last ones as in streaming (None: all).
    Weights and keys are those of the target; the verification reads everything.
    """

    name = "self-speculation"
    kind = "system"
    lossless = True
    formula = "as speculative; a draft reads share x weights and min(l, W) tokens of KV"
    source = "Draft & Verify (Zhang 2023); TriForce (Sun 2024) on StreamingLLM (Xiao 2023)"

    alpha: Share = 0.8
    drafts: Count = 4
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
        drafting = Drafting(
            drafter, (1,) * self.drafts, is_part=True, context_tokens=self.context_tokens
        )
        return self._passing(setup, Chain(self.alpha, self.drafts), drafting)

    def _drafter(self, model: ModelShape) -> ModelShape:
        """Return ``model`` with its share of each kind of layer, at least one of each."""
        share = self.layer_share
        return model.with_layers(
            lambda g: [g.model_copy(update={"count": max(1, round(g.count * share))})]
        )


class BlockwiseDecoding(DraftedDecoding):
    """Heads of the model propose the next ``block``, the next pass verifies it.

    Each token after the first is right with probability ``alpha``. The heads are trained into the
    model, and cost nothing here.
    """

    name = "blockwise"
    formula = "m / k + 1 passes for m tokens, k of a block accepted on average"
    source = "Stern 2018; Medusa (Cai 2024)"

    alpha: Share = 0.7
    block: Annotated[int, Field(ge=2)] = 4

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with passes of a block."""
        return self._passing(setup, Blockwise(self.alpha, self.block))


class DiffusionDecoding(DraftedDecoding):
    """A block of ``block_tokens`` is refined in ``passes`` passes; it takes another kind of model.

    All tokens of a block come out together.
    """

    name = "diffusion"
    formula = "speed-up N t_decode / (K t_forward(N)): N / K below the ridge, less past it"
    source = "block diffusion (Arriola 2025)"

    block_tokens: Annotated[int, Field(ge=2)] = 32
    passes: Count = 8

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with blocks."""
        return self._passing(setup, Diffusion(self.block_tokens, self.passes))


_Depth = Annotated[float, Field(gt=0, le=1)]


class EarlyExitDecoding(Technique):
    """A token leaves the layers as soon as a classifier is confident of it.

    A decode leaves after ``depths`` of the layers, with probabilities ``shares``:
    ``depths=0.5x1,shares=0.75x0.25`` on a command line. Prompts go through all layers; the layers
    that a token skipped get its keys and values all the same.
    """

    name = "early-exit"
    family = "decoding"
    formula = "FLOPs x E[depth]; weights are read as deep as the deepest token of the step"
    source = "CALM (Schuster 2022)"

    depths: Annotated[tuple[_Depth, ...], BeforeValidator(_split_by_x)] = (0.5, 1.0)
    shares: Annotated[tuple[Share, ...], BeforeValidator(_split_by_x)] = (0.75, 0.25)

    @model_validator(mode="after")
    def _every_token_leaves_somewhere(self) -> "EarlyExitDecoding":
        if len(self.depths) != len(self.shares):
            raise ValueError(f"{len(self.depths)} depths, but {len(self.shares)} shares")
        if not isclose(sum(self.shares), 1, abs_tol=1e-9):
            raise ValueError(f"shares sum to {sum(self.shares):g}; every token leaves once: 1")
        return self

    @property
    def exits(self) -> EarlyExit:
        """Where tokens leave, and with which probability."""
        return EarlyExit(tuple(zip(self.depths, self.shares, strict=True)))

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with exits; raise where decodes verify drafts."""
        if setup.acceptance is not None:
            raise self.refusal(_SEVERAL_TOKENS)
        return setup.with_deployment(early_exit=self.exits)


class ModelCascade(Technique):
    """Easy requests go to a small model, hard ones to the large one; both share the devices.

    ``small_share`` of the rows are those of ``small``. A router decides beforehand, at no cost
    here; with its cost c_route a request costs c_route + q c_small + (1 - q) c_large (RouteLLM),
    and c_small + (1 - q') c_large where all try the small model first and q' stay (FrugalGPT).
    """

    name = "cascade"
    family = "decoding"
    formula = "cost c_route + q c_small + (1 - q) c_large"
    source = "RouteLLM (Ong 2024); FrugalGPT (Chen 2023)"

    small: str = "tinyllama-1.1b"
    small_share: Share = 0.6

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with both models; raise where ``small`` is larger, or beside drafts."""
        small, large = find_model(self.small), setup.deployment.model
        if small.params() > large.params():
            raise self.refusal(
                f"{small.name} has {small.params():.3g} weights, more than the "
                f"{large.params():.3g} of {large.name}; the small model must be the smaller"
            )
        if setup.acceptance is not None:
            raise self.refusal(_SEVERAL_TOKENS)
        setup.with_deployment(model=small)  # refuses devices that do not divide its heads
        return setup.with_deployment(cascade=Cascade(small, self.small_share))
