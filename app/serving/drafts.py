"""What the bundled engine drafts with, for a technique of the simulator."""

from servetwin.app.serving.models import model_of
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.models.model_config import ModelConfig
from servetwin.sim.step_times.acceptance import Chain, StoppedChain, Tree
from servetwin.sim.step_times.roofline.deployment import Drafting
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError


def drafts_of(setup: Setup, target: ModelConfig) -> Drafts:
    """Return the drafts of a setup.

    Raises ``PolicyError`` with what the engine has nothing for.
    """
    law, drafting = setup.acceptance, setup.deployment.drafting
    if not isinstance(law, Chain | StoppedChain | Tree) or drafting is None:
        raise PolicyError("it drafts with a model, with layers of the model itself, or n-grams")
    _require_simple(drafting)
    widths = law.widths if isinstance(law, Tree) else (1,) * law.drafts
    least = law.least_confidence if isinstance(law, StoppedChain) else 0.0
    if drafting.is_part:
        layers = sum(group.count for group in drafting.model.layers)
        share = layers / target.layers
        return Drafts("layers", widths, layer_share=share, least_confidence=least)
    shape = model_of(drafting.model, target)
    if shape.vocab_size != target.vocab_size:
        raise PolicyError(
            f"it translates no tokens: {shape.name} has {shape.vocab_size} in its vocabulary, "
            f"{target.name} {target.vocab_size}"
        )
    return Drafts("model", widths, model=shape.name, shape=shape, least_confidence=least)


def _require_simple(drafting: Drafting) -> None:
    """Raise ``PolicyError`` for a drafter that is elsewhere, or reads less than all."""
    lacks = {
        f"placement={drafting.placement}": drafting.placement != "device",
        "draft_format": drafting.form is not None,
        "draft_memory=host": not drafting.resident,
        "context_tokens": drafting.context_tokens is not None,
    }
    if found := [name for name, lacking in lacks.items() if lacking]:
        raise PolicyError(f"it has no {', '.join(found)}; drafts are made beside the model, as it")
