"""How much of their prompts requests find in a cache that never forgets."""


def shared_prefix_hit_rate(requests: int, shared_tokens: int, prompt_tokens: int) -> float:
    """Hit tokens over prompt tokens of equal prompts with one common beginning: (K - 1) s / K n.

    ``shared_tokens`` in whole blocks, and less than the prompt: its last token is always computed.
    """
    return (requests - 1) * shared_tokens / (requests * prompt_tokens)
