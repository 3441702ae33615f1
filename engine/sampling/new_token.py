"""One token that a step yields, and what is said of it."""

from typing import NamedTuple


class NewToken(NamedTuple):
    """A token that was sampled, or drafted and accepted."""

    token_id: int
    drafted: int = 0
    """Tokens that were drafted for the pass of which this is the first token."""
