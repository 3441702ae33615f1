"""The page of parallelism shows what the link model says."""

import re

from servetwin.sim.catalogue.hardware import Link
from tests.support.parallel_techniques import TECHNIQUES
from tests.support.paths import DOCS

# The page
PAGE = (DOCS / "techniques" / "parallel.md").read_text()


def test_every_parallel_technique_has_its_section() -> None:
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert {technique.name for technique, _ in TECHNIQUES} <= set(headings)


def test_the_page_shows_what_the_link_model_says() -> None:
    link = Link(5e-6, 200e9)
    rows = re.findall(r"^\| ([\d,]+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 4
    for size, ranks, *printed in rows:
        size_bytes = float(size.replace(",", ""))
        ring_s = link.all_reduce_s(size_bytes, int(ranks), "ring")
        tree_s = link.all_reduce_s(size_bytes, int(ranks), "tree")
        assert [f"{1e6 * s:.2f}" for s in (ring_s, tree_s)] == printed
