"""The fuzzer of YAML files, for a fixed number of cases."""

from tests.fuzz import yaml_files
from tests.fuzz.campaign import Budget, run


def test_yaml_files_are_read_or_refused() -> None:
    run("yaml_files", yaml_files.draw, yaml_files.check, seed=15, budget=Budget(cases=150))
