"""Each term is explained once, and the first use on a page leads to it."""

import re
from pathlib import Path

import pytest
from glossary_links import terms, with_links

from tests.support.paths import DOCS

HEADINGS = re.findall(r"^## (.+)$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
TTFT = '<a class="term" href="g.html#ttft-time-to-first-token">{}</a>'


def test_terms_stand_once_and_in_order() -> None:
    assert len(HEADINGS) > 50
    assert sorted(set(HEADINGS), key=str.lower) == HEADINGS
    assert len(terms()) == sum(1 + heading.count("(") for heading in HEADINGS)


@pytest.mark.parametrize(
    "term",
    [
        "request", "step", "prefill", "decode", "preemption", "block table", "prefix cache",
        "token budget", "ttft", "tpot", "itl", "e2e latency", "throughput", "goodput", "slo",
        "slo attainment", "schedule lag", "batch row", "kv cache",
    ],
)  # fmt: skip
def test_the_words_of_the_field_are_explained(term: str) -> None:
    assert term in terms()


@pytest.mark.parametrize(
    ("html", "linked"),
    [
        ("<p>The TTFT of a TTFT</p>", f"<p>The {TTFT.format('TTFT')} of a TTFT</p>"),
        ("<p>Time to first token</p>", f"<p>{TTFT.format('Time to first token')}</p>"),
        ("<h2>TTFT</h2><p>TTFTs</p>", f"<h2>TTFT</h2><p>{TTFT.format('TTFTs')}</p>"),
        ("<a href='x'>TTFT</a>", "<a href='x'>TTFT</a>"),
        ("<pre><code>TTFT</code></pre>", "<pre><code>TTFT</code></pre>"),
        ("<p>ttft_s, pre-TTFT, TTFT-like</p>", "<p>ttft_s, pre-TTFT, TTFT-like</p>"),
        ("a &lt; b &#38; c<br/><!-- TTFT -->", "a &lt; b &#38; c<br/><!-- TTFT -->"),
        ('<svg viewBox="0 0 1 1"><text>TTFT</text></svg>',) * 2,
    ],
)
def test_the_first_use_in_prose_leads_to_the_glossary(html: str, linked: str) -> None:
    assert with_links(html, "g.html") == linked


@pytest.mark.parametrize(
    ("text", "anchor"),
    [
        ("policies", "policy"),
        ("batches", "batch"),
        ("SLO attainment", "slo-attainment"),
        ("a KV cache", "kv-cache"),
        ("a KV\n  cache", "kv-cache"),
    ],
)
def test_plurals_and_longer_terms_are_found(text: str, anchor: str) -> None:
    assert f'href="#{anchor}"' in with_links(text, "")


@pytest.mark.slow
def test_every_term_is_used_and_linked_on_the_site(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    led = {
        anchor
        for text in pages.values()
        for anchor in re.findall(r'class="term" href="(?:\.\./)*glossary\.html#([^"]+)"', text)
    }
    assert set(terms().values()) - led == set()
    assert 'class="term"' not in pages[site / "glossary.html"]
