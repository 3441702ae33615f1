"""A path from start to answer: the columns of an own CSV, the page Plan, a number of GPUs."""

import json
import random
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.dashboard_app import Browser, expect
from tests.support.paths import ROOT

pytestmark = pytest.mark.browser

REQUESTS = 400
START = datetime(2026, 11, 20, 9)


def own_csv(path: Path, per_s: float) -> Path:
    """Write the log of a service as it might be: its own names, semicolons, failed requests."""
    draw, at_s = random.Random(7), 0.0
    lines = ["Received;Input tokens;Completion tokens;HTTP status;Region"]
    for number in range(REQUESTS):
        at_s += draw.expovariate(per_s)
        stamp = (START + timedelta(seconds=at_s)).isoformat(" ", "milliseconds").replace(".", ",")
        prompt, failed = draw.randint(200, 1500), number % 40 == 39
        answer = "" if failed else str(draw.randint(50, 400))
        lines.append(f"{stamp};{prompt};{answer};{429 if failed else 200};eu")
    path.write_text("\n".join(lines) + "\n")
    return path


def planned_on_the_command_line(path: Path) -> dict[str, Any]:
    """Return the plan of the command line for the same file, on H100s."""
    words = "plan", str(path), "--model", "llama-3-8b", "--slo", "ttft=500ms,tpot=50ms"
    command = [sys.executable, "-m", "servetwin.app.cli", *words, "--gpu", "h100", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)["plans"]
    return dict(row)


@pytest.mark.slow
def test_a_csv_of_a_service_becomes_a_number_of_gpus_in_four_clicks(
    user: Browser, tmp_path: Path
) -> None:
    path = own_csv(tmp_path / "service.csv", per_s=90.0)
    user.open("explore", "Explore")
    user.upload(path)
    dialog = user.page.get_by_role("dialog")
    expect(dialog.get_by_text("--map arrival=Received,")).to_be_visible()
    user.press("Use these columns")
    expect(dialog).to_have_count(0)
    sidebar = user.page.get_by_test_id("stSidebar")
    expect(sidebar.get_by_text("service.csv: 390 requests; failed: 429 (10)")).to_be_visible()
    user.page.get_by_role("link", name="Plan", exact=True).click()
    user.await_heading("Plan", level=1)
    h100s = user.page.get_by_role("tab", name="x h100")
    expect(h100s).to_be_visible(timeout=120_000)
    planned = planned_on_the_command_line(path)
    assert h100s.inner_text() == f"{planned['gpus']} x h100"
    answer = user.page.get_by_role("heading", level=3)
    expect(answer).to_contain_text("hold TTFT 500 ms, TPOT 50 ms for 99 % of the requests")
    user.assert_sound()
