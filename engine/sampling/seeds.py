"""Seeds of sequences. Free of torch, so that the core can name it."""

import secrets

_WORD = (1 << 64) - 1


def new_seed() -> int:
    """Return a seed from the operating system."""
    return secrets.randbits(64)


def sample_seed(seed: int, sample: int) -> int:
    """Return the seed of one of several samples of a request; the first has the request's own."""
    if not sample:
        return seed
    word = (seed + sample * 0x9E3779B97F4A7C15) & _WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31
