"""The README names what there is, and leads to it; tests/docs run it and check its figures."""

import re

from servetwin.app.cli import COMMANDS
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"(?<!from )servetwin ([a-z]+)", README))
    assert named <= {name.split()[0] for name in COMMANDS}
    assert {"replay", "serve", "calibrate", "loadtest", "verify", "workload"} <= named


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", README)
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists()] == []
