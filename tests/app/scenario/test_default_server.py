"""One model on one device has one step time wherever a default server is named."""

import re
import shlex
from pathlib import Path

import pytest

from servetwin.app.plan.plan import plan
from servetwin.app.scenario.files.scenario_file import FIRST_SERVER
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.simulations import PlanOptions
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.records.metrics import SLO
from servetwin.sim.step_times.profile import load_profile, shipped_profiles
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.transform import at_rate, limit
from tests.support.paths import DOCS, ROOT

ALONE = at_rate(limit(sample_trace(), 100), 0.01)
"""Requests that do not meet."""
PAIR = Deployment(model="llama-3-8b", gpu="h100")
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def tpot_s(deployment: Deployment) -> float:
    return float(run_once(ALONE, deployment.scenario()).requests["tpot_s"].median())


def named_in_the_refusal() -> Deployment:
    with pytest.raises(PolicyError) as error:
        Deployment().scenario()
    words = shlex.split(str(error.value).replace(",", ""))
    model, gpu = (words[words.index(option) + 1] for option in ("--model", "--gpu"))
    return Deployment(model=model, gpu=gpu)


def planned() -> Deployment:
    options = PlanOptions(gpu=("h100",), replications=0, processes=1)
    return plan(ALONE, "llama-3-8b", SLO(ttft_s=1.0), options=options).rows[0].deployment


def test_every_default_server_has_the_same_tpot() -> None:
    servers = [FIRST_SERVER, PAIR, named_in_the_refusal(), planned()]
    assert [tpot_s(one) for one in servers] == pytest.approx([tpot_s(FIRST_SERVER)] * 4, rel=0.005)


def test_no_shipped_profile_repeats_what_a_model_and_a_device_say() -> None:
    profiles = [load_profile(name) for name in shipped_profiles()]
    assert "computed from data sheets" not in {profile.origin for profile in profiles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_profile_that_is_not_shipped_or_made_there(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"(?:--profile |load_profile\(\")([a-z0-9.-]+)(?=[\s\"`])", text)
    assert {name for name in named if not name.endswith(".json")} <= {*shipped_profiles()}
