"""The messages in the evidence are those of the link model."""

from servetwin.sim.catalogue.hardware import Link
from tests.support.evidence import rows


def test_messages_are_those_of_the_link_model() -> None:
    link = Link(5e-6, 200e9)
    for size, ranks, *printed in rows("links"):
        size_bytes = float(size.replace(",", ""))
        ring_s = link.all_reduce_s(size_bytes, int(ranks), "ring")
        tree_s = link.all_reduce_s(size_bytes, int(ranks), "tree")
        assert [f"{1e6 * s:.2f}" for s in (ring_s, tree_s)] == printed
