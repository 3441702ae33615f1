"""The site as a reader has it: opened from disk in Chromium, without a network."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.dashboard_app import Chromium, expect, noted

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Scheme = Literal["light", "dark"]
SCHEMES: dict[Scheme, str] = {"light": "default", "dark": "slate"}
PAGES = (
    "index.html",
    "try.html",
    "architecture.html",
    "glossary.html",
    "guides/own-policy.html",
    "reference/python-api.html",
    "reference/command-line.html",
)


@contextmanager
def opened(
    chromium: Chromium, site: Path, page: str, scheme: Scheme = "light", width: int = 1280
) -> Iterator[Any]:
    """A page; at the end, nothing was asked of a server, and the console is silent."""
    with chromium.page(width, scheme, offline=True) as tab, noted(tab) as (asked, said):
        tab.goto((site / page).as_uri())
        yield tab
        assert said == []
        assert asked[0] == (site / page).as_uri()
        root = site.as_uri()
        assert [url for url in asked if not url.startswith((root, "data:"))] == []


def show(tab: Any, scheme: Scheme) -> None:
    """Show a page in the theme of a system that changes to ``scheme``."""
    tab.emulate_media(color_scheme=scheme)
    expect(tab.locator("body")).to_have_attribute("data-md-color-scheme", SCHEMES[scheme])


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES[:-1])
def test_no_page_has_a_serious_finding_of_axe(chromium: Chromium, site: Path, page: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with opened(chromium, site, page) as tab:
        for name in SCHEMES:
            show(tab, name)
            found = axe.Axe().run(tab, options={"preload": False}).response["violations"]
            assert [
                (one["id"], [node["target"] for node in one["nodes"]])
                for one in found
                if one["impact"] in ("serious", "critical")
            ] == [], name


@pytest.mark.parametrize("page", PAGES)
def test_a_page_asks_for_nothing_outside_and_fits_a_telephone(
    chromium: Chromium, site: Path, page: str
) -> None:
    with opened(chromium, site, page, width=400) as tab:
        expect(tab.locator("h1")).to_be_visible()
        tab.wait_for_load_state("networkidle")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize(
    ("term", "title", "target"),
    [
        ("preemption", "Preemption", "preemption"),
        ("coordinated omission", "Coordinated omission", "glossary.html"),
        ("find_capacity", "find_capacity", "reference/python-api.html"),
    ],
)
def test_the_search_finds_pages_and_leads_to_them(
    chromium: Chromium, site: Path, term: str, title: str, target: str
) -> None:
    with opened(chromium, site, "guides/own-trace.html") as tab:
        box = tab.get_by_placeholder("Search")
        box.fill(term)
        box.press("End")  # The page searches when a key is released.
        result = tab.locator(".md-search-result__link", has_text=title).first
        expect(result).to_be_visible()
        result.click()
        tab.wait_for_url(f"**{target}*")


def test_the_search_says_where_it_finds_nothing(chromium: Chromium, site: Path) -> None:
    with opened(chromium, site, "index.html") as tab:
        tab.get_by_placeholder("Search").press_sequentially("zzyzx")
        expect(tab.locator(".md-search-result__meta")).to_have_text("No matching documents")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_switch(
    chromium: Chromium, site: Path, scheme: Scheme
) -> None:
    with opened(chromium, site, "architecture.html", scheme) as tab:
        body = tab.locator("body")
        expect(body).to_have_attribute("data-md-color-scheme", SCHEMES[scheme])
        for name in SCHEMES:
            tab.locator(f'label[title="Switch to the {name} theme"]').click()
            expect(body).to_have_attribute("data-md-color-scheme", SCHEMES[name])
            ink = {"light": "rgb(31, 36, 48)", "dark": "rgb(230, 232, 238)"}[name]
            expect(tab.locator(".diagram text").first).to_have_css("fill", ink)


OUTSIDE = """
() => [...document.querySelectorAll('svg.diagram rect:not(.area)')].flatMap(rect => {
  const box = rect.getBBox(), words = [];
  for (let text = rect.nextSibling; text?.nodeName === 'text'; text = text.nextSibling) {
    const at = text.getBBox();
    if (at.x < box.x + 2 || at.x + at.width > box.x + box.width - 2 ||
        at.y < box.y || at.y + at.height > box.y + box.height) words.push(text.textContent);
  }
  return words;
})
"""


@pytest.mark.parametrize("page", ["index.html", "architecture.html"])
def test_words_of_diagrams_fit_their_boxes_which_lead_to_pages(
    chromium: Chromium, site: Path, page: str
) -> None:
    with opened(chromium, site, page) as tab:
        assert tab.evaluate(OUTSIDE) == []
        tab.locator("svg.diagram a", has_text="Scheduler" if "arch" in page else "Policies").click()
        expect(tab.locator("h1")).to_contain_text("Schedulers")


def test_a_term_leads_to_its_explanation(chromium: Chromium, site: Path) -> None:
    with opened(chromium, site, "policies/kv-memory.html") as tab:
        tab.locator("a.term", has_text="Sequence").or_(tab.locator("a.term")).first.click()
        tab.wait_for_url("**/glossary.html#*")
        anchor = tab.url.partition("#")[2]
        expect(tab.locator(f'[id="{anchor}"]')).to_be_in_viewport()
