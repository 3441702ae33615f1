"""The page of serving techniques counts as the code does."""

import re

from servetwin.sim.techniques.setup import with_eager_kernels
from servetwin.sim.theory.batches import exponential_slot_efficiency
from servetwin.sim.theory.serving import copy_on_write
from tests.support.formulas.techniques import chunk_passes, kv_tokens_read, shared_prefix_hit_rate
from tests.support.paths import DOCS
from tests.support.published.frameworks import SERVERS
from tests.support.serving_techniques import SERVING, equal_kernels, gain_over_static

PAGE = (DOCS / "techniques" / "serving.md").read_text()


def rows_under(heading: str) -> list[list[float]]:
    """Rows of numbers in the section of that name."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\|([\d |.,%]+)\|$", section, re.MULTILINE)
    return [[float(re.sub(r"[,% ]", "", cell)) for cell in line.split("|")] for line in lines]


def test_every_serving_technique_has_its_section() -> None:
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert {technique.name for technique in SERVING} <= set(headings)


def test_the_page_counts_chunks_as_the_code_does() -> None:
    rows = rows_under("chunked-prefill")
    assert len(rows) == 3
    for prompt, chunk, passes, read in rows:
        whole = int(prompt), int(chunk)
        assert (chunk_passes(*whole), kv_tokens_read(*whole)) == (passes, read)


def test_the_page_counts_hits_and_shared_blocks_as_the_code_does() -> None:
    hits, blocks = rows_under("prefix-cache"), rows_under("copy-on-write")
    assert len(hits) == len(blocks) == 3
    for requests, shared, prompt, percent in hits:
        rate = shared_prefix_hit_rate(int(requests), int(shared), int(prompt))
        assert f"{100 * rate:.1f}" == f"{percent:.1f}"
    for prompt, output, samples, *counts in blocks:
        forked = copy_on_write(int(prompt), int(output), int(samples), 16)
        assert [forked.blocks, forked.unshared_blocks, forked.copies] == counts


def test_the_page_says_what_static_batches_use() -> None:
    rows = rows_under("dynamic-insertion")
    assert len(rows) == 3
    for slots, percent, gain in rows:
        efficiency = exponential_slot_efficiency(int(slots))
        assert (f"{100 * efficiency:.1f}", f"{1 / efficiency:.2f}") == (
            f"{percent:.1f}",
            f"{gain:.2f}",
        )


def test_the_page_shows_the_gains_over_plain_batches() -> None:
    printed = re.findall(r"^\| .* answers? \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert printed == [
        tuple(
            f"{gain_over_static(model, hardware, answers, plain):.1f}"
            for model, hardware in SERVERS
        )
        for plain in (equal_kernels, with_eager_kernels)
        for answers in (1, 3)
    ]
