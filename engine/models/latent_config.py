"""The widths of multi-head latent attention."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Keys and values of all heads are products of one latent per token (arXiv 2405.04434).

    Of each query head, the first ``head_dim - rope_dim`` elements meet keys made of the latent,
    the others one rotated key that all heads share.
    """

    rank: int
    """Width of the latent."""
    rope_dim: int
    value_dim: int
    """Width of a value head."""
    query_rank: int | None = None
    """Width of the latent that the queries are made of; None: they are made of the hidden state."""
    norm_eps: float = 1e-6
    """Of the norms of both latents, which DeepSeek's code leaves at this."""
