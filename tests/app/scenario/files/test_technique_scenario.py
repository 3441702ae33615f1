"""A scenario file for techniques: what is wrong in it is named with file and key."""

from pathlib import Path

import pytest

from servetwin.app.scenario.files.technique_scenario import read_technique_scenario
from servetwin.workloads.errors import PolicyError

SERVER = "deployment: {model: opt-13b, gpu: a100-80gb"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workload: {prompt_tokens: abc}", "key 'workload.prompt_tokens': Input should be a valid"),
        ("workload: {samples: 0}", "key 'workload.samples': Input should be greater than or"),
        ("workload: {shared_tokens: -16}", "key 'workload.shared_tokens': Input should be greater"),
        ("workload: {load: .nan}", "key 'workload.load': Input should be a finite number"),
        ("workload: {load: 0}", "key 'workload.load': Input should be greater than 0"),
        ("workload: {alone: 1.5}", "key 'workload.alone': Input should be a valid integer"),
        ("workload: {lod: 1}", "workload: unknown key 'lod'; did you mean 'load'?"),
        (
            f"{SERVER}, without: [kv-cach]}}",
            "unknown technique 'kv-cach'; did you mean 'kv-cache'?",
        ),
        (f"{SERVER}, techniques: fp8, without: fp8}}", "technique fp8: both on (--technique) and"),
    ],
)
def test_a_wrong_value_is_named_with_the_file_and_the_key(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(PolicyError) as error:
        read_technique_scenario(path)
    assert said in str(error.value)
    assert str(error.value).startswith(f"{path}: ")


def test_what_the_load_does_not_say_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("workload: {load: 1e1, prompt_tokens: 99}", "utf-8")
    found, default = read_technique_scenario(path).experiment, read_technique_scenario(None)
    assert (found.load, found.prompt_tokens) == (10.0, 99)
    assert found.output_tokens == default.experiment.output_tokens
