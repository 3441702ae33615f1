"""One pass of a decoder over several rows of each sequence: what drafting and verifying compute."""

from dataclasses import dataclass

import torch
from torch import Tensor

from servetwin.engine.attention.step_attention import AttentionBackend, is_decode
from servetwin.engine.models.device import to_device
from servetwin.engine.models.model import Decoder
from servetwin.policies.batch import ScheduledSequence


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of one sequence in a pass; ``sampled`` are those whose logits are wanted."""

    entry: ScheduledSequence
    token_ids: list[int]
    positions: range | list[int]
    sampled: range | list[int]

    def single_rows(self) -> list["Share"]:
        """Return each row as a decode of its own: of a chain, each sees all before it."""
        seq, start, tokens, samples, _ = self.entry
        return [
            Share(
                ScheduledSequence(seq, start + row, 1, samples),
                [self.token_ids[row]],
                [self.positions[row]],
                range(int(row in self.sampled)),
            )
            for row in range(tokens)
        ]


@dataclass(frozen=True, slots=True)
class Network:
    """A decoder with its KV memory."""

    model: Decoder
    attention: AttentionBackend

    def logits(self, shares: list[Share]) -> Tensor:
        """Compute the shares; float32 logits of their sampled rows, in the order of the shares."""
        order = sorted(range(len(shares)), key=lambda place: not is_decode(shares[place].entry))
        token_ids: list[int] = []
        positions: list[int] = []
        first_row = [0] * len(shares)
        for place in order:
            first_row[place] = len(token_ids)
            token_ids += shares[place].token_ids
            positions += shares[place].positions
        rows = [
            first + row for first, s in zip(first_row, shares, strict=True) for row in s.sampled
        ]
        plan = self.attention.plan([shares[place].entry for place in order])
        device = self.attention.store.keys.device
        ids, places, sampled = (to_device(ints, device) for ints in (token_ids, positions, rows))
        return self.model.forward(ids, places, max(positions) + 1, plan, sampled)


def see_ancestors(attention: AttentionBackend, paths: tuple[tuple[int, ...], ...]) -> None:
    """Let the rows of drafted trees see what is on their path from the root alone."""
    seen = torch.zeros(len(paths), len(paths), dtype=torch.bool)
    for row, path in enumerate(paths):
        seen[row, list(path)] = True
    attention.tree = seen.to(attention.store.keys.device)
