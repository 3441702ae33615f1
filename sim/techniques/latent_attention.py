"""Multi-head latent attention: one low-dimensional latent per token stands for all K and V."""

from sim.shapes.mixers import Attention, LatentAttention, Mixer
from sim.shapes.model import ModelShape
from sim.shapes.part import Count
from sim.techniques.mixer_change import change_attention
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError

_DIMENSIONS = ("latent_dim", "rope_dim", "nope_dim", "value_dim")


class MultiHeadLatent(Technique):
    """A latent of ``latent_dim`` and a key of ``rope_dim`` per token and layer.

    A head's query and key have ``nope_dim`` + ``rope_dim`` elements, its value ``value_dim``. A
    model that has latent attention is left as it is; its ``off`` is multi-head attention with
    heads of ``value_dim``.
    """

    name = "latent-attention"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "L (d_c + d_rope) elements per token instead of 2 L h e"
    source = "DeepSeek-V2 (2024), section 2.1"

    latent_dim: Count | None = None
    rope_dim: Count | None = None
    nope_dim: Count | None = None
    value_dim: Count | None = None

    def apply(self, setup: Setup) -> Setup:
        """With latents; refused without their dimensions on a model that has none."""
        model = setup.deployment.model
        if _is_latent(model):
            return setup
        if missing := [name for name in _DIMENSIONS if getattr(self, name) is None]:
            raise PolicyError(
                f"{self.name}: {model.name} has no latent attention; to give it some, say "
                f"{', '.join(missing)} (DeepSeek-V2: 512, 64, 128, 128)"
            )
        return change_attention(self, setup, self._latent)

    def off(self, setup: Setup) -> Setup:
        """A latent model as it would be with full keys and values; any other as it is."""
        full = setup.deployment.model.with_mixers(_multi_head)
        return setup.with_deployment(model=full)

    def _latent(self, attention: Attention) -> LatentAttention:
        dimensions = {name: getattr(self, name) for name in _DIMENSIONS}
        return LatentAttention(heads=attention.heads, **dimensions)


def _is_latent(model: ModelShape) -> bool:
    return any(isinstance(group.mixer, LatentAttention) for group in model.layers)


def _multi_head(mixer: Mixer) -> Mixer:
    if not isinstance(mixer, LatentAttention):
        return mixer
    return Attention(heads=mixer.heads, kv_heads=mixer.heads, head_dim=mixer.value_dim)
