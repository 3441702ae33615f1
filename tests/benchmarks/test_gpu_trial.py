"""What ``make gpu`` starts fits a card, its tests are found; ``make gpu TRIAL=1`` runs it all."""

import subprocess
import sys
from itertools import product
from typing import Any

import pytest

from servetwin.app.scenario.settings import policies_named
from servetwin.engine.fit import require_fit
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import model_preset
from servetwin.engine.models.tensor_layout import parameters
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from tests.benchmarks.gpu_session import POLICIES, SHAPES, SIZES, gpu_tests
from tests.support.paths import ROOT

ROOM_BYTES = 0.8 * 80e9
"""Of an A100 or H100, beside steps, graphs and the runtime."""


@pytest.mark.parametrize(("shape", "policy"), [*product(SHAPES, POLICIES)])
def test_what_is_verified_on_a_card_fits_it(shape: str, policy: str) -> None:
    values = [*map(int, SIZES[1::2])]
    names = [option.removeprefix("--").replace("-", "_") for option in SIZES[::2]]
    sizes: dict[str, Any] = dict(zip(names, values, strict=True))
    policies = policies_named(policy, PolicyConfig(**sizes), "--policy")
    model = model_preset(shape)
    computation = Computation(device="cuda", dtype="bfloat16")
    require_fit(model, policies, computation, build_scheduler(policies).memory)
    kv_bytes = policies.kv_tokens * model.kv_bytes_per_token(2)
    assert 2 * parameters(model) + kv_bytes < ROOM_BYTES


@pytest.mark.slow
def test_the_tests_for_a_card_are_found_and_skipped_without_one() -> None:
    """A file that cannot be imported would be found out on the card."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "gpu", *gpu_tests()],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(found) > 20
