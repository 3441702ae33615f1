"""The blocks of one sequence in each group of layers, and what is next to happen to them."""

from servetwin.policies.kv.kv_groups import KVGroup

# Stands in a table where a group keeps nothing.
NOWHERE = -1


class BlockTables:
    """For each group a table of blocks by place, of which ``firsts`` to ``ends`` are held.

    A block that was taken before its positions are granted lies behind the end. ``keyed`` leading
    blocks can be found by others; at ``due`` positions a table changes next. The last step that was
    decided computes positions from ``settled`` on.
    """

    __slots__ = ("blocks", "due", "ends", "firsts", "groups", "keyed", "settled", "size")

    def __init__(self, groups: list[KVGroup], size: int) -> None:
        self.groups = groups
        self.size = size
        self.blocks: list[list[int]] = [[] for _ in groups]
        self.firsts = [0] * len(groups)
        self.ends = [0] * len(groups)
        self.keyed = self.due = self.settled = 0

    def begin(self, place: int, first: int, blocks: list[int]) -> None:
        """Let the table of a group begin with these blocks, from place ``first`` on."""
        self.blocks[place] = [NOWHERE] * first + blocks
        self.firsts[place], self.ends[place] = first, first + len(blocks)

    def states(self) -> list[list[int]]:
        """Return the tables of the groups that keep a state."""
        tables = zip(self.groups, self.blocks, strict=True)
        return [blocks for group, blocks in tables if group.kind in ("state", "fixed")]

    def held(self) -> list[int]:
        """Return the blocks of all tables."""
        return [
            block
            for blocks, first, end in zip(self.blocks, self.firsts, self.ends, strict=True)
            for block in blocks[first:end]
            if block >= 0
        ]

    def missing(self, place: int, tokens: int) -> int:
        """Return the blocks that a group takes for ``tokens`` positions.

        Of states it takes that of all positions, and the one before it that ends with a block.
        """
        group = self.groups[place]
        missing = group.end(tokens, self.size) - self.ends[place]
        if group.kind == "state":
            missing = min(missing, 1 + (tokens % self.size > 0))
        return missing if missing > 0 else 0

    def new_blocks(self, tokens: int) -> int:
        """Return the blocks that all groups take for ``tokens`` positions."""
        return sum([self.missing(place, tokens) for place in range(len(self.groups))])

    def new_blocks_at_once(self, tokens: int, rows: int) -> int:
        """Return as ``new_blocks`` does, but only what is held at a time where ``rows`` run."""
        needed = 0
        for place, group in enumerate(self.groups):
            missing = self.missing(place, tokens)
            if group.kind != "state":
                missing = min(missing, group.most(1 << 62, rows, self.size) - self.ends[place])
            needed += max(0, missing)
        return needed

    def lengthen(self, place: int, tokens: int) -> int:
        """Grant a group ``tokens`` positions; return how many blocks its table still lacks."""
        blocks, end = self.blocks[place], self.groups[place].end(tokens, self.size)
        if end <= self.ends[place]:
            return 0
        if self.groups[place].kind == "state":
            blocks += [NOWHERE] * (end - self.ends[place] - self.missing(place, tokens))
        self.ends[place] = end
        return max(0, end - len(blocks))

    def leave_behind(self, computed: int) -> list[int]:
        """Take out the blocks that no position after ``computed`` ones needs, the last first."""
        left: list[int] = []
        for place, group in enumerate(self.groups):
            old = self.firsts[place]
            first = min(group.first(computed, self.size), self.ends[place])
            if first > old:
                self.firsts[place] = first
                left += reversed(self.blocks[place][old:first])
        return left

    def next_change(self, tokens: int, lag: int) -> int:
        """Return the next number of positions, above ``tokens``, at which a table changes.

        A decode lets blocks go ``lag`` positions later.
        """
        size = self.size
        due = -(-tokens // size) * size + 1
        for place, group in enumerate(self.groups):
            first = self.firsts[place] + 1
            if group.kind == "window":
                due = min(due, first * size + group.tokens + lag)
            elif group.kind == "chunk":
                is_behind = group.first(tokens, size) >= first
                chunks = 0 if is_behind else (tokens - 1) // group.tokens + 1
                due = min(due, chunks * group.tokens + 1 + lag)
            elif group.kind == "state":
                due = min(due, first * size + 2 + lag)
        return max(due, tokens + 1)
