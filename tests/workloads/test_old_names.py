"""Old names: every module of version 0.1 that documentation or plug-ins may import."""

import importlib
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from workloads.old_names import OLD_CLASSES, OLD_MODULES


@pytest.mark.parametrize("old", OLD_MODULES)
def test_an_old_module_hands_on_the_names_of_the_new_one(old: str) -> None:
    module, new = importlib.import_module(old), importlib.import_module(OLD_MODULES[old])
    names = [name for name in vars(new) if not name.startswith("_")]
    for name in names[-2:]:
        with pytest.warns(
            DeprecationWarning, match=rf"{old}\.{name} is now {new.__name__}\.{name}"
        ):
            assert getattr(module, name) is getattr(new, name)


@pytest.mark.parametrize(("old", "names"), OLD_CLASSES.items())
def test_a_renamed_class_is_found_by_its_old_name(old: str, names: dict[str, str]) -> None:
    module, new = importlib.import_module(old), importlib.import_module(OLD_MODULES[old])
    for before, now in names.items():
        with pytest.warns(DeprecationWarning, match=rf"is now {new.__name__}\.{now}"):
            assert getattr(module, before) is getattr(new, now)


def test_an_unknown_name_of_an_old_module_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        importlib.import_module("policies.queueing").Missing  # noqa: B018


def test_a_fresh_process_imports_by_an_old_name() -> None:
    code = "from policies.continuous import ContinuousBatching; from sim.roofline.bounds import *"
    command = [sys.executable, "-W", "error::ImportWarning", "-c", code]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
