"""The shape of one slice of a model that several ranks share. Free of torch."""

from dataclasses import replace

from servetwin.engine.models.model_config import ModelConfig
from servetwin.workloads.errors import EngineError


def shard_config(config: ModelConfig, ways: int) -> ModelConfig:
    """Return the shape of one of ``ways`` slices.

    Raises ``EngineError`` where the model cannot be divided so.
    """
    divided = {"heads": config.heads, "ffn_size": config.ffn_size, "vocab_size": config.vocab_size}
    for name, size in divided.items():
        if size % ways:
            raise EngineError(
                f"tensor_parallel: {ways} ranks do not divide the {name} {size} of model "
                f"{config.name}; use a divisor of it"
            )
    if config.kv_sharing > 1:
        raise EngineError(
            f"tensor_parallel: layers of model {config.name} share keys and values, which are not "
            "divided; use 1 rank"
        )
    if config.kv_heads % ways and ways % config.kv_heads:
        raise EngineError(
            f"tensor_parallel: {ways} ranks neither divide the {config.kv_heads} kv_heads of model "
            f"{config.name}, nor are they a multiple of them"
        )
    return replace(
        config,
        heads=config.heads // ways,
        kv_heads=max(1, config.kv_heads // ways),
        ffn_size=config.ffn_size // ways,
    )
