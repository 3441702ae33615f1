"""The computed figures of serving in the evidence are those of the code."""

from servetwin.sim.techniques.setup import with_eager_kernels
from tests.support.evidence import number, rows
from tests.support.formulas.techniques import chunk_passes, kv_tokens_read, shared_prefix_hit_rate
from tests.support.published.frameworks import SERVERS
from tests.support.serving_techniques import equal_kernels, gain_over_static
from tests.support.theory.batches import exponential_slot_efficiency
from tests.support.theory.serving import copy_on_write


def figures(name: str) -> list[list[float]]:
    return [[number(cell) for cell in row] for row in rows(name)]


def test_the_table_counts_chunks_as_the_code_does() -> None:
    chunks = figures("chunks")
    assert len(chunks) == 3
    for prompt, chunk, passes, read in chunks:
        whole = int(prompt), int(chunk)
        assert (chunk_passes(*whole), kv_tokens_read(*whole)) == (passes, read)


def test_the_table_counts_hits_and_shared_blocks_as_the_code_does() -> None:
    hits, blocks = figures("prefix-hits"), figures("copy-on-write")
    assert len(hits) == len(blocks) == 3
    for requests, shared, prompt, percent in hits:
        rate = shared_prefix_hit_rate(int(requests), int(shared), int(prompt))
        assert f"{100 * rate:.1f}" == f"{percent:.1f}"
    for prompt, output, samples, *counts in blocks:
        forked = copy_on_write(int(prompt), int(output), int(samples), 16)
        assert [forked.blocks, forked.unshared_blocks, forked.copies] == counts


def test_the_table_says_what_static_batches_use() -> None:
    slots_used = figures("static-slots")
    assert len(slots_used) == 3
    for slots, percent, gain in slots_used:
        efficiency = exponential_slot_efficiency(int(slots))
        assert (f"{100 * efficiency:.1f}", f"{1 / efficiency:.2f}") == (
            f"{percent:.1f}",
            f"{gain:.2f}",
        )


def test_the_table_shows_the_gains_over_plain_batches() -> None:
    assert [tuple(gains) for _, *gains in rows("over-static")] == [
        tuple(
            f"{gain_over_static(model, hardware, answers, plain):.1f}"
            for model, hardware in SERVERS
        )
        for plain in (equal_kernels, with_eager_kernels)
        for answers in (1, 3)
    ]
