"""Groups of layers that keep the same positions: their text, and the blocks that each needs.

As in vLLM's hybrid KV cache manager (0.32: v1/core/single_type_kv_cache_manager.py), every group
has block tables of its own over one pool, and a block holds ``block_tokens`` positions of it.
"""

import re
from dataclasses import dataclass

from servetwin.workloads.errors import PolicyError
from servetwin.workloads.native_class import mypyc_attr

_FORM = re.compile(r"(?:(\d+)x)?(full|state|window(?=:)|chunk(?=:)|kept(?=:))(?::(\d+))?")
_RIGHT = "full, window:TOKENS, chunk:TOKENS, state, kept:TOKENS, several of one as 5xwindow:1024"
_MOST = 1000


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers that keep all positions (``full``), those of a sliding ``window`` of so many tokens,
    or of the ``chunk`` that a position lies in.

    ``kept`` tokens have so many places, which newer ones take over (StreamingLLM, Xiao 2023; H2O,
    Zhang 2023). A ``state`` is kept whatever the length, in one block or as so many tokens; a
    prefix cache also has the states at the ends of blocks.
    """

    kind: str
    tokens: int = 0

    def first(self, computed: int, size: int) -> int:
        """Return the first block that the position after ``computed`` ones needs."""
        if self.kind == "window":
            return max(0, computed - self.tokens + 1) // size
        if self.kind == "chunk":
            return computed // self.tokens * self.tokens // size
        return max(0, computed - 1) // size if self.kind == "state" else 0

    def end(self, tokens: int, size: int) -> int:
        """Return the block behind the last one of so many positions."""
        if self.kind == "fixed":
            return max(1, -(-self.tokens // size))
        if self.kind == "kept" and tokens > self.tokens:
            tokens = self.tokens
        return -(-tokens // size)

    def most(self, longest: int, rows: int, size: int) -> int:
        """Return the most blocks of a sequence of ``longest`` positions, ``rows`` of them running.

        vLLM 0.32, v1/kv_cache_interface.py: ``max_admission_blocks_per_request``.
        """
        if self.kind == "window":
            return -(-min(self.tokens - 1 + rows, longest) // size) + 1
        if self.kind == "chunk":
            return -(-min(self.tokens + rows, longest) // size)
        return 2 if self.kind == "state" else self.end(longest, size)


def parse_groups(text: str, block_tokens: int, shares: bool) -> list[KVGroup]:
    """Return the groups that ``full,5xwindow:1024`` stands for; with ``shares``, of a prefix cache.

    Raises ``PolicyError`` for what is no group, has no layers, or is below a block.
    """
    groups: list[KVGroup] = []
    for part in text.split(","):
        form = _FORM.fullmatch(part.strip())
        if form is None or (form[2] == "full" and form[3]):
            raise PolicyError(f"kv_groups: {part!r} is no group; it must be one of {_RIGHT}")
        count, kind, tokens = int(form[1] or 1), form[2], int(form[3] or 0)
        if not 0 < count <= _MOST:
            raise PolicyError(f"kv_groups: {part!r} has no layers; give 1 to {_MOST} groups")
        if kind in ("window", "chunk") and tokens < block_tokens:
            raise PolicyError(
                f"kv_groups: {part!r} is below a block of {block_tokens} tokens; give a larger "
                "one, or smaller block_tokens"
            )
        if kind == "kept" or (kind == "state" and tokens):
            if shares:
                raise PolicyError(
                    f"prefix_cache: {part!r} of kv_groups forgets what others would share; set "
                    "prefix_cache false"
                )
            if not tokens:
                raise PolicyError(f"kv_groups: {part!r} keeps nothing; give 1 token or more")
        fixed = kind == "state" and not shares
        groups += [KVGroup("fixed" if fixed else kind, tokens)] * count
    return groups


def blocks_per_request(groups: list[KVGroup], longest: int, rows: int, size: int) -> int:
    """Return the blocks of a request as long as the model allows, ``rows`` of a step running."""
    return sum(group.most(longest, rows, size) for group in groups)
