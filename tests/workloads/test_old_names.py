"""Old names: every module of version 0.1 that documentation or plug-ins may import."""

import importlib
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from workloads.old_names import old_modules


@pytest.mark.parametrize("old", old_modules())
def test_an_old_module_hands_on_the_names_of_the_new_one(old: str) -> None:
    place = old_modules()[old]
    module, new = importlib.import_module(old), importlib.import_module(place.module)
    kept = [name for name in vars(new) if not name.startswith("_")][-2:]
    for before, now in {**{name: name for name in kept}, **place.renamed}.items():
        with pytest.warns(
            DeprecationWarning, match=rf"{old}\.{before} is now {new.__name__}\.{now}"
        ):
            assert getattr(module, before) is getattr(new, now)


def test_an_unknown_name_of_an_old_module_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        importlib.import_module("policies.queueing").Missing  # noqa: B018


@pytest.mark.slow
def test_a_fresh_process_imports_by_an_old_name() -> None:
    code = "from policies.continuous import ContinuousBatching; from sim.roofline.bounds import *"
    command = [sys.executable, "-W", "error::ImportWarning", "-c", code]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
