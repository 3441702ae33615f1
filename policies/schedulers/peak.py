"""The most memory that running sequences will ever hold together (LightLLM's admission).

Sequences hold one position more with every step until they end. The sequence with the fewest tokens
left ends first. So memory peaks at the end of one of them, when it and all that have as many or
more left are still there.
"""

from collections.abc import Iterable

from servetwin.policies.sequence import Sequence


def peak_tokens(seqs: Iterable[Sequence]) -> int:
    """Return the positions that sequences hold at their peak, as far as their lengths are declared.

    One that does not decode yet counts as if its prompt were computed and its next token out.
    """
    lengths = []
    for seq in seqs:
        generated = seq.generated_tokens + (seq.lockstep is None)
        lengths.append((seq.max_tokens - generated - 1, seq.prompt_tokens + generated))
    lengths.sort(reverse=True)
    held = peak = 0
    for place, (left, tokens) in enumerate(lengths, 1):
        held += tokens
        peak = max(peak, held + place * max(0, left))
    return peak
