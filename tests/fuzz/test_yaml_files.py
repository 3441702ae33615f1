"""The fuzzer of files of settings and of measured times, for a fixed number of cases."""

import pytest

from servetwin.workloads.errors import ServetwinError
from tests.fuzz import yaml_files
from tests.fuzz.campaign import Budget, run


@pytest.mark.slow
def test_files_are_read_or_refused() -> None:
    run("yaml_files", yaml_files.draw, yaml_files.check, seed=15, budget=Budget(cases=250))


@pytest.mark.parametrize("name", yaml_files.KINDS)
def test_every_sample_is_right_but_that_of_odd_yaml(name: str) -> None:
    kind = yaml_files.KINDS[name]
    for sample in kind.samples:
        if "odd" in name:
            with pytest.raises(ServetwinError):
                kind.read(sample)
        else:
            kind.read(sample)
