"""A pool of blocks that sequences hold by number of positions: what paged memories share."""

from bisect import bisect_right

from servetwin.policies.config import PolicyConfig
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import KVLayout
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockPool:
    """Counts free blocks; a subclass says how many hold so many positions of a sequence.

    New blocks are taken from those never used, then from those given back.
    """

    layout: KVLayout = "paged"

    def __init__(self, config: PolicyConfig) -> None:
        self.block_tokens = config.block_tokens
        self.total_blocks = config.kv_tokens // config.block_tokens
        self.capacity_tokens = self.total_blocks * self.block_tokens
        # Blocks that a sequence takes for each ``block_tokens`` new positions, at most.
        self.growing_groups = 1
        # Whether decodes give blocks back while they go on.
        self.gives_back = False
        # Whether prompts for different adapters share nothing (vLLM).
        self.apart_by_adapter = config.adapter_slots > 0
        self._free = self.total_blocks
        self._watermark = config.watermark_of(self.total_blocks)
        self._watermark_alone = self._watermark if config.watermark_alone else 0
        # Whether each decode must find a free block, even if it needs none.
        self._spare_block = config.decode_needs_free_block
        # Whether a part of a prompt may be decoded, and so even an answer of one token decodes.
        self._shortens_prompts = config.recompute == "computed"
        self._untouched = 0  # blocks from here on were never handed out
        self._returned: list[int] = []

    def refusal(self, seq: Sequence) -> str | None:
        """Return why ``seq`` can never be held, even alone; None where it can."""
        free, blocks = self._watermark_alone, self._blocks(seq.final_kv_tokens)
        if self._spare_block and (seq.max_tokens > 1 or self._shortens_prompts):
            free = max(free, 1 - (blocks - self._blocks(seq.final_kv_tokens - 1)))
        if blocks + free <= self.total_blocks:
            return None
        reserve = f", {free} of them kept free" if free else ""
        return (
            f"needs {self._need(seq)}, the memory has {self.capacity_tokens} "
            f"({self.total_blocks} blocks of {self.block_tokens}{reserve})"
        )

    def reserve(self, seq: Sequence, tokens: int) -> bool:
        """Take the cached prefix and room for ``tokens`` positions; else False, and unchanged."""
        return self.reserve_part(seq, tokens, tokens)

    def reserve_part(self, seq: Sequence, tokens: int, fitting_tokens: int) -> bool:
        """Reserve as ``reserve`` does, but only with room for ``fitting_tokens`` positions.

        Every pool defines its own.
        """
        raise NotImplementedError

    def extend(self, seq: Sequence, tokens: int) -> bool:
        """Give a sequence outside a lockstep group room for ``tokens`` positions, or False.

        Every pool defines its own.
        """
        raise NotImplementedError

    def has_room(self, decodes: Lockstep, ends: list[tuple[Sequence, int]]) -> bool:
        """Return whether ``grow`` and ``extend`` to each end would all be granted."""
        needed = self._growth(decodes, 1) if decodes.size else 0
        needed += sum(max(0, self._blocks(end) - self._held(seq)) for seq, end in ends)
        return needed <= self._available()

    def grow(self, lockstep: Lockstep, steps: int = 1) -> bool:
        """Take room for ``steps`` more positions of every member; False, unchanged, without it."""
        needed = lockstep.new_blocks(steps)
        if self._spare_block and self._growth(lockstep, steps) > self._available():
            return False
        if needed > self._free and not self._find_room(needed):
            return False
        self._free -= needed
        lockstep.granted_step += steps
        if lockstep.rows > 1:
            lockstep.grant(needed)
        return True

    def repeatable_steps(self, lockstep: Lockstep, limit: int) -> int:
        """Return how many more steps (at most ``limit``) ``grow`` would grant."""
        most = lockstep.size * (limit * lockstep.reach // self.block_tokens + 1)
        most *= self.growing_groups
        most += self._spare_block
        available = self._available()
        if most <= available:
            return limit
        return bisect_right(
            range(1, limit + 1),
            available,
            key=lambda steps: self._growth(lockstep, steps),
        )

    def free_tokens(self) -> int:
        """Return the tokens that could be given out now, cached prefixes included."""
        return self._available() * self.block_tokens

    def _need(self, seq: Sequence) -> str:
        """Return in words what a sequence needs in the end."""
        return f"{seq.final_kv_tokens} KV tokens"

    def _blocks(self, positions: int) -> int:
        """Return the blocks that hold so many positions of a sequence."""
        return -(-positions // self.block_tokens)

    def _growth(self, lockstep: Lockstep, steps: int) -> int:
        """Return the blocks that members need for ``steps`` positions beyond the granted."""
        return lockstep.new_blocks(steps) + self._spare(lockstep, steps)

    def _spare(self, lockstep: Lockstep, steps: int) -> int:
        """Return 1 where the last member must find a free block that it does not take."""
        return int(self._spare_block and not lockstep.last_begins_block(steps))

    def _held(self, seq: Sequence) -> int:
        """Blocks of a sequence; decodes that grow hold what they have been granted."""
        group = seq.lockstep
        tokens = seq.base_computed_tokens if group is None else group.granted_tokens(seq)
        return max(seq.held.blocks, self._blocks(tokens))

    def _available(self) -> int:
        """Return the blocks that could be given out now."""
        return self._free

    def _find_room(self, needed: int) -> bool:
        """Return whether so many can be given out where fewer are free."""
        return False

    def _evict(self, blocks: int) -> None:
        raise AssertionError("more blocks are given out than there are")

    def _number(self, seq: Sequence, blocks: int) -> None:
        """Make the table of a sequence at least so many blocks long; it is never cut."""
        missing = blocks - len(seq.blocks)
        if missing > 0:
            seq.blocks += self._take(missing)

    def _take(self, blocks: int) -> list[int]:
        """Give out numbers: first the ones never used, then the last that came back."""
        fresh = min(blocks, self.total_blocks - self._untouched)
        missing = blocks - fresh
        while (unknown := missing - len(self._returned)) > 0:
            self._evict(unknown)
        taken = list(range(self._untouched, self._untouched + fresh))
        self._untouched += fresh
        if missing:
            taken += reversed(self._returned[-missing:])
            del self._returned[-missing:]
        return taken
