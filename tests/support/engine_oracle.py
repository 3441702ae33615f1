"""What an independent implementation (transformers) says after four prompts, in float32."""

from dataclasses import dataclass, replace

import torch

from servetwin.engine.models.model_config import ModelConfig, model_preset
from servetwin.engine.models.weights import Weights, random_weights
from tests.support.transformers_models import transformers_model

# A tied head or the usual deviation of 0.02 makes the model echo itself, and equality would
# prove nothing.
CONFIG = replace(model_preset("tiny"), tie_embeddings=False, rope_theta=20_000.0, norm_eps=1e-4)
STD = 0.06
PROMPT_TOKENS, NEW_TOKENS, SHARED_TOKENS = 40, 32, 32


def make_prompts() -> list[list[int]]:
    """Four random prompts; the first two begin with the same two blocks."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(CONFIG.vocab_size, (4, PROMPT_TOKENS), generator=generator)
    ids[1, :SHARED_TOKENS] = ids[0, :SHARED_TOKENS]
    return [[int(token) for token in row] for row in ids]


PROMPTS = make_prompts()


@dataclass(frozen=True)
class Oracle:
    tokens: list[list[int]]
    logits: torch.Tensor
    """[prompt, new token, vocabulary]."""


@torch.inference_mode()
def ask_transformers(weights: Weights, config: ModelConfig = CONFIG) -> Oracle:
    """Greedy tokens with everything recomputed for each."""
    model, ids, logits = transformers_model(config, weights), torch.tensor(PROMPTS), []
    for _ in range(NEW_TOKENS):
        logits.append(model(ids, use_cache=False).logits[:, -1])
        ids = torch.cat([ids, logits[-1].argmax(-1, keepdim=True)], dim=1)
    return Oracle(ids[:, PROMPT_TOKENS:].tolist(), torch.stack(logits, 1))


def draw_weights(device: str = "cpu", config: ModelConfig = CONFIG) -> Weights:
    return random_weights(config, torch.float32, torch.device(device), seed=0, std=STD)
