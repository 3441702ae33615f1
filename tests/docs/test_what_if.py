"""The page "Try it": what it shows is what its commands print, by keyboard and on a telephone."""

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_site_browser import opened
from tests.support.command import servetwin
from tests.support.dashboard_app import Chromium, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PLACES = ("0-0-0-0-0-1", "0-1-0-1-1-2", "1-1-0-0-0-0")
"""Model, GPU, lengths, server, limits and rate of tests/support/what_if.yaml."""


def choose(tab: Any, place: str) -> None:
    tab.evaluate(f"location.hash = '#{place}'")
    expect(tab.locator("#wi-models")).to_have_value(place[0])
    expect(tab.locator("#wi-rates")).to_have_value(place[-1])


def figures(tab: Any) -> dict[str, str]:
    names, values = (tab.locator(f"#wi-figures {tag}").all_inner_texts() for tag in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def shown(seconds: float) -> str:
    value, unit = (1000 * seconds, "ms") if seconds < 1 else (seconds, "s")
    return f"{float(f'{value:.4g}'):,g} {unit}"


def commands(tab: Any) -> list[list[str]]:
    """The command that makes the load, that replays it, and that asks for its limits."""
    lines = tab.locator("#wi-commands").inner_text().replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.parametrize("place", PLACES)
def test_a_grid_point_is_what_its_commands_print(
    chromium: Chromium, site: Path, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(chromium, site, "try.html") as tab:
        choose(tab, place)
        verdict, page = tab.locator("#wi-verdict").inner_text(), figures(tab)
        generate, replay, sweep = commands(tab)
        assert tab.locator("#wi-start").inner_text() in replay
    monkeypatch.chdir(tmp_path)
    assert servetwin(*generate).code == 0
    run = json.loads(servetwin(*replay, "--json", "--replications", "0").out)
    for part in ("p50", "p99"):
        assert page[f"{part} TTFT"] == shown(run["ttft_s"][part])
        assert page[f"{part} TPOT"] == shown(run["tpot_s"][part])
    tokens = float(page["Output"].removesuffix(" tokens/s").replace(",", ""))
    assert tokens == float(f"{run['output_throughput_tokens_per_s']:.4g}")
    (point,) = json.loads(servetwin(*sweep, "--json").out)["points"]
    share = math.floor(1000 * point["slo_attainment"] + 1e-9) / 10
    assert f" {share:.1f} %" in verdict
    assert verdict.startswith("Holds" if point["slo_attainment"] >= 0.99 else "Missed")


def test_the_keyboard_moves_the_load_up_to_overload_and_the_answer_is_said(
    chromium: Chromium, site: Path
) -> None:
    with opened(chromium, site, "try.html", "dark", width=360) as tab:
        choose(tab, "0-0-0-0-1-0")
        slider, verdict = tab.locator("#wi-rates"), tab.locator("#wi-verdict")
        expect(verdict).to_contain_text("Holds: ")
        slider.press("ArrowRight")
        expect(slider).to_have_attribute("aria-valuetext", "4 requests/s")
        slider.press("End")
        expect(verdict).to_contain_text("Overloaded: already at")
        assert tab.url.endswith("#0-0-0-0-1-4")
        expect(tab.locator("#wi-curve svg")).to_have_attribute("aria-label", re.compile("at 4/s"))
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_what_does_not_fit_says_what_the_command_says(
    chromium: Chromium, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(chromium, site, "try.html") as tab:
        choose(tab, "1-0-0-0-0-0")
        reason = tab.locator("#wi-verdict").inner_text().removeprefix("Not possible: ").rstrip(".")
        assert figures(tab) == {"Cost": "$1.58 per hour, 2 x l40s"}
        generate, replay, _ = commands(tab)
    monkeypatch.chdir(tmp_path)
    assert servetwin(*generate).code == 0
    done = servetwin(*replay)
    assert (done.code, done.err.partition("servetwin: ")[2].strip()) == (2, reason)
