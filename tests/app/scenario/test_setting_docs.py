"""One sentence for a setting, wherever it is shown."""

import re
from typing import Any

import pytest
from typer.main import get_command

from servetwin.app.cli import app
from servetwin.app.dashboard.scenario.controls import CONTROLS
from servetwin.app.scenario.files.scenario_file import ScenarioFile, Workload
from servetwin.app.scenario.setting_docs import filled_help, setting_docs
from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import SCHEDULERS
from servetwin.sim.experiments.scenario import ClusterConfig
from servetwin.workloads.errors import PolicyError


def test_a_setting_has_its_default_and_its_sentence() -> None:
    docs = setting_docs()
    assert docs["policies.max_seqs"].default == PolicyConfig().max_seqs
    assert docs["workload.requests"].default == Workload().requests
    assert docs["seed"].default == ScenarioFile().seed
    assert [key for key, doc in docs.items() if not doc.meaning.endswith((".", "..."))] == []
    assert {f"workload.{name}" for name in Workload.model_fields} <= docs.keys()


def test_the_least_value_of_a_count_is_the_one_that_is_checked() -> None:
    classes: dict[str, Any] = {"policies": PolicyConfig, "cluster": ClusterConfig}
    for section, of in classes.items():
        for key, doc in setting_docs().items():
            where, _, name = key.rpartition(".")
            if where == section and doc.least is not None:
                with pytest.raises(PolicyError, match=f"^{name}: .* at least {doc.least}$"):
                    of(**{name: doc.least - 1})
    assert setting_docs()["workload.requests"].least == 1
    assert setting_docs()["workload.cv"].least is None
    assert CONTROLS["max_seqs"].low == setting_docs()["policies.max_seqs"].least


def test_help_names_the_registered_choices() -> None:
    help_text = filled_help("{policies.batching}")
    assert all(name in help_text for name in SCHEDULERS)
    assert help_text.startswith(setting_docs()["policies.batching"].sentence.rstrip("."))
    assert filled_help("{policies.batching} More.") == f"{help_text} More."
    assert setting_docs()["policies.reservation"].choices == ("max", "pow2", "exact")


@pytest.mark.parametrize("name", [name for name, control in CONTROLS.items() if control.key])
def test_a_control_has_the_help_and_holds_the_default_of_its_setting(name: str) -> None:
    control, doc = CONTROLS[name], setting_docs()[CONTROLS[name].key]
    assert control.help == doc.sentence
    default: Any = list(doc.default) if isinstance(doc.default, tuple) else doc.default
    if default is not None and not isinstance(default, bool):
        assert control.problem(default) is None


@pytest.mark.parametrize("command", ["replay", "serve", "calibrate", "verify", "sweep"])
def test_every_key_in_a_help_text_is_a_setting(command: str) -> None:
    helps = [p.help or "" for p in get_command(app).commands[command].params]  # type: ignore[attr-defined]
    keys = [key for text in helps for key in re.findall(r"\{(.*?)\}", text) if ":" not in key]
    assert keys
    assert set(keys) <= set(setting_docs())


@pytest.mark.parametrize("command", ["replay", "loadtest", "serve", "calibrate"])
def test_an_option_has_the_sentence_below_its_field_as_help(command: str) -> None:
    parameters = get_command(app).commands[command].params  # type: ignore[attr-defined]
    helps = [filled_help(p.help or "") for p in parameters]
    assert all(helps)
    assert not [text for text in helps if "{" in text]


def test_an_option_of_a_group_above_has_the_sentence_there() -> None:
    place = "servetwin.app.scenario.options.trace:TraceOptions"
    assert filled_help(f"{{{place}.start_s}}") == "Window start, s."
    assert filled_help(f"{{{place}.estimate_cv}}").startswith("Error of the declared")
    with pytest.raises(KeyError):
        filled_help(f"{{{place}.limit}}")
