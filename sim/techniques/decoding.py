"""Techniques of decoding: several tokens from one pass, fewer layers, a smaller model.

Symbols in the formulas: m output tokens, k accepted tokens of a block, N tokens and K passes of a
diffusion block, q share of the small model.
"""

from dataclasses import replace
from math import isclose
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from servetwin.sim.catalogue.entry import Share
from servetwin.sim.step_times.acceptance import Acceptance, Chain, Diffusion
from servetwin.sim.step_times.roofline.deployment import Cascade, Drafting, EarlyExit
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError

_SEVERAL_TOKENS = "not modelled together with passes of several tokens"


def split_by_x(given: Any) -> Any:
    """Return the parts of ``3x2x1``: on a command line a comma ends the parameter."""
    return given.split("x") if isinstance(given, str) else given


# Passes or drafts for one token or block: each takes time to simulate.
PassCount = Annotated[int, Field(ge=1, le=1_024)]


class DraftedDecoding(Technique):
    """A technique whose passes compute several rows of a sequence and may yield several tokens."""

    def _passing(
        self, setup: Setup, acceptance: Acceptance, drafting: Drafting | None = None
    ) -> Setup:
        """Return ``setup`` whose decodes verify what ``drafting`` proposes.

        ``acceptance`` says how many tokens come out of a pass. Raises ``PolicyError`` where drafts
        make no sense.
        """
        deployment = setup.deployment
        for other, is_there in (
            ("a server without a KV cache", not deployment.kv_cache),
            ("a cascade of models", deployment.cascade is not None),
            ("early exit", deployment.early_exit is not None),
        ):
            if is_there:
                raise self.refusal(f"not modelled together with {other}")
        if setup.acceptance is not None:
            raise self.refusal(_SEVERAL_TOKENS)
        try:
            drafts, ahead = acceptance.rows - 1, drafting is not None  # vLLM: not with n-grams
            policies = setup.policies.with_drafts(drafts, acceptance.prompt_token, ahead)
        except PolicyError as error:
            raise self.refusal(str(error)) from error
        drafted = replace(setup, policies=policies).with_deployment(drafting=drafting)
        return replace(drafted, acceptance=acceptance)


class BlockwiseDecoding(DraftedDecoding):
    """Heads of the model propose the next ``block``, the next pass verifies it.

    Each token after the first is right with probability ``alpha``. The heads are trained into the
    model, and cost nothing here.
    """

    alpha: Share = 0.7
    block: Annotated[int, Field(ge=2)] = 4

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with passes of a block."""
        return self._passing(setup, Chain(self.alpha, self.block - 1))  # the first is always right


class DiffusionDecoding(DraftedDecoding):
    """A block of ``block_tokens`` is refined in ``passes`` passes; it takes another kind of model.

    All tokens of a block come out together.
    """

    block_tokens: Annotated[int, Field(ge=2)] = 32
    passes: PassCount = 8

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

    depths: Annotated[tuple[_Depth, ...], BeforeValidator(split_by_x)] = (0.5, 1.0)
    shares: Annotated[tuple[Share, ...], BeforeValidator(split_by_x)] = (0.75, 0.25)

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

    small: str = "tinyllama-1.1b"
    small_share: Share = 0.6

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with both models; raise where ``small`` is larger, or beside drafts."""
        small, large = self.model_of("small"), setup.deployment.model
        if small.params() > large.params():
            raise self.refusal(
                f"{small.name} has {small.params():.3g} weights, more than the "
                f"{large.params():.3g} of {large.name}; the small model must be the smaller"
            )
        if setup.acceptance is not None:
            raise self.refusal(_SEVERAL_TOKENS)
        setup.with_deployment(model=small)  # refuses devices that do not divide its heads
        return setup.with_deployment(cascade=Cascade(small, self.small_share))
