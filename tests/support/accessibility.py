"""What axe-core finds on a page, what is cut off on it, and what the keyboard reaches."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

GRAVE = {"serious", "critical"}
_RUN = """
async ([within, options]) => {
  const found = await axe.run(within, options);
  return found.violations.flatMap(rule => rule.nodes.map(node => ({
    rule: rule.id, impact: rule.impact, element: node.target.flat().join(' '), html: node.html,
    said: node.failureSummary,
  })));
}
"""
# What scrolls by itself is cut off too: it does not show that there is more. The grid of a table is
# drawn on a canvas, and its scroller is as wide as all columns.
_CUT_OFF = """
() => [...document.querySelectorAll('[data-testid=stMain] *, [data-testid=stHeader] *')]
  .filter(e => e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1)
  .filter(e => !e.closest('[data-testid=stDataFrame], svg, [aria-hidden=true]'))
  .filter(e => getComputedStyle(e).overflowX !== 'visible')
  .map(e => `${e.outerHTML.slice(0, 160)}: ${e.scrollWidth} of ${e.clientWidth} px`)
"""
_OUTSIDE = """
() => [...document.querySelectorAll('[data-testid=stMain] *')]
  .filter(e => e.clientWidth > 0 && e.getBoundingClientRect().right > innerWidth + 1)
  .filter(e => !e.closest('[data-testid=stDataFrame], svg, [style*="clip-path"]'))
  .map(e => `${e.outerHTML.slice(0, 160)}: outside the window`)
"""
_IS_SHOWN = """
theme => getComputedStyle(document.querySelector('[data-testid=stApp]')).colorScheme === theme
  && document.getAnimations().every(one => one.playState !== 'running'
    || one.effect.getComputedTiming().endTime === Infinity)
"""
_PALE = """
least => {
  const ink = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const parts = colour => {
    ink.clearRect(0, 0, 1, 1);
    ink.fillStyle = colour;
    ink.fillRect(0, 0, 1, 1);
    return [...ink.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [[r, .2126], [g, .7152], [b, .0722]].reduce((sum, [v, share]) =>
    sum + share * (v <= 10 ? v / 3294.6 : ((v / 255 + .055) / 1.055) ** 2.4), 0);
  const page = light(parts(getComputedStyle(document.querySelector('[data-testid=stApp]'))
    .backgroundColor));
  return [...document.querySelectorAll('[data-testid=stPlotlyChart] svg text')]
    .filter(e => e.textContent.trim() && !e.closest('.hoverlayer, .barlayer'))
    .filter(e => !e.closest('svg').parentElement.querySelector('.heatmaplayer .hm')
      || !e.closest('.annotation'))
    .map(e => [e.textContent, light(parts(getComputedStyle(e).fill))])
    .map(([text, own]) => [text, (Math.max(own, page) + .05) / (Math.min(own, page) + .05)])
    .filter(([, contrast]) => contrast < least)
    .map(([text, contrast]) => `${text}: ${contrast.toFixed(2)} to 1`);
}
"""
_FOCUSED = """
() => {
  const found = document.activeElement;
  const box = found.getBoundingClientRect();
  const labels = [...(found.labels || [])].map(label => label.innerText);
  const name = found.ariaLabel || labels.join(' ') || found.innerText || found.title || '';
  const role = found.type === 'range' ? 'slider' : found.tagName.toLowerCase();
  return {role: found.getAttribute('role') || role, name: name.trim(),
          x: box.x, y: box.y, width: box.width, height: box.height};
}
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule of axe-core that an element breaks."""

    rule: str
    element: str
    html: str
    said: str


def show_in(page: Any, theme: str) -> None:
    """Show a page in a theme (light, dark), and wait until no colour changes any more."""
    page.emulate_media(color_scheme=theme)
    page.wait_for_function(_IS_SHOWN, arg=theme)


def focused(page: Any) -> dict[str, Any]:
    """Return role, name and place of what has the focus."""
    found: dict[str, Any] = page.evaluate(_FOCUSED)
    return found


def grave_findings(page: Any, within: str = "html") -> list[Finding]:
    """Return the serious and the critical findings, element by element, on a page or in a part."""
    from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]

    if not page.evaluate("typeof axe !== 'undefined'"):
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate(_RUN, [within, {"resultTypes": ["violations"]}])
    return [
        Finding(one["rule"], one["element"], one["html"], one["said"])
        for one in found
        if one["impact"] in GRAVE
    ]


def cut_off(page: Any) -> list[str]:
    """Return the elements that hold more than they show, or lie outside the window."""
    return [*page.evaluate(_CUT_OFF), *page.evaluate(_OUTSIDE)]


def pale_texts_of_charts(page: Any, least: float = 4.5) -> list[str]:
    """Return titles, ticks and legends of charts with too little contrast: axe does not look."""
    found: list[str] = page.evaluate(_PALE, least)
    return found


def stops(page: Any, most: int = 60) -> Iterator[dict[str, Any]]:
    """Press Tab, and yield role, name and place of what then has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        yield focused(page)


def in_words(found: list[Finding]) -> str:
    """Return the findings as lines of a failed test."""
    return json.dumps(
        [[one.rule, one.element, one.html[:200], one.said] for one in found], indent=1
    )
