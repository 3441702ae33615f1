"""What techniques have in common whose decodes compute several rows a pass."""

from dataclasses import replace

from sim.step_times.acceptance import Acceptance
from sim.step_times.roofline.deployment import Drafting
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError

_BATCHING = "continuous"


class DraftedDecoding(Technique):
    """Several tokens may come out of a pass; how many is drawn from a law of acceptance."""

    family = "decoding"

    def _passing(self, setup: Setup, law: Acceptance, drafting: Drafting | None = None) -> Setup:
        """``setup`` whose decodes verify what ``drafting`` proposes, accepted by ``law``.

        The step's token budget grows by the drafts, so that prompts find the room they had.
        Raises ``PolicyError`` where drafts make no sense.
        """
        self._refuse_what_drafts_do_not_go_with(setup)
        drafts, policies = law.rows - 1, setup.policies
        drafted = setup.with_deployment(drafting=drafting).with_policies(
            batching="speculative",
            draft_rows=drafts,
            token_budget=policies.token_budget + policies.max_seqs * drafts,
        )
        return replace(drafted, acceptance=law)

    def _refuse_what_drafts_do_not_go_with(self, setup: Setup) -> None:
        batching, deployment = setup.policies.batching, setup.deployment
        if batching != _BATCHING:
            raise PolicyError(
                f"{self.name}: needs batching: {_BATCHING}, whose decodes it replaces, not "
                f"{batching}"
            )
        for hindrance, there in (
            ("a server without a KV cache", not deployment.kv_cache),
            ("a cascade of models", deployment.cascade is not None),
            ("early exit", deployment.early_exit is not None),
        ):
            if there:
                raise PolicyError(f"{self.name}: not modelled together with {hindrance}")
