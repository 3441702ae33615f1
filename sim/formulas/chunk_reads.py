"""What a prompt costs in chunks: steps, and keys and values that are read again.

Source: Sarathi (Agrawal 2023).
"""


def chunk_passes(prompt_tokens: int, chunk_tokens: int) -> int:
    """Steps of a prompt: ceil(n / C)."""
    return -(-prompt_tokens // chunk_tokens)


def kv_tokens_read(prompt_tokens: int, chunk_tokens: int) -> int:
    """Positions read over all chunks, each its own and those before: n (n + C) / 2C in whole ones.

    A prompt in one piece reads n.
    """
    whole, rest = divmod(prompt_tokens, chunk_tokens)
    return chunk_tokens * whole * (whole + 1) // 2 + (prompt_tokens if rest else 0)
