"""The environment of ``make gpu``: what it installs without a network, what it names as missing."""

import base64
import hashlib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.benchmarks import gpu_environment
from tests.benchmarks.gpu_environment import (
    EnvironmentIncomplete,
    main,
    make_environment,
    missing_of,
    prepare,
    requirements,
)

PACKAGE = "servetwin-test-package"


@pytest.fixture
def with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that has torch."""
    monkeypatch.setattr(gpu_environment, "find_spec", lambda name: name)


def write_wheel(folder: Path) -> None:
    """A wheel of ``PACKAGE`` with nothing in it."""
    stem = f"{PACKAGE.replace('-', '_')}-1.0"
    about = f"{stem}.dist-info"
    files = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{about}/RECORD,,"]
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{name},sha256={digest.decode()},{len(text)}")
    folder.mkdir()
    with ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for name, text in {**files, f"{about}/RECORD": "\n".join(rows) + "\n"}.items():
            wheel.writestr(name, text)


def test_what_is_needed_comes_from_the_project_and_torch_stays_as_it_is() -> None:
    needed, for_tests = requirements()
    names = {line.partition(">")[0] for line in needed}
    assert {"numpy", "simpy", "starlette", "uvicorn"} <= names
    assert "torch" not in names
    assert {line.partition(">")[0] for line in for_tests} == set(gpu_environment.FOR_TESTS)


def test_the_environment_sees_the_packages_of_this_interpreter(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "environment")
    assert missing_of(python, ["numpy>=1", "servetwin-absent-package>=2"]) == [
        "servetwin-absent-package>=2"
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("with_torch")
def test_wheels_are_installed_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_environment, "requirements", lambda: ([f"{PACKAGE}>=1"], []))
    write_wheel(tmp_path / "wheels")
    assert main([str(tmp_path / "environment"), "--wheels", str(tmp_path / "wheels")]) == 0
    assert missing_of(tmp_path / "environment" / "bin" / "python", [PACKAGE]) == []


@pytest.mark.usefixtures("with_torch")
def test_what_could_not_be_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_environment, "install", lambda *_: "pip said why")
    monkeypatch.setattr(gpu_environment, "requirements", lambda: (["numpy", f"{PACKAGE}>=1"], []))
    with pytest.raises(EnvironmentIncomplete) as failed:
        prepare(tmp_path / "environment")
    assert str(failed.value).startswith(f"missing: {PACKAGE}>=1. Without a network")
    assert f"pip download -d wheels '{PACKAGE}>=1'; then" in str(failed.value)
    assert str(failed.value).endswith("pip said why")
    monkeypatch.setattr(gpu_environment, "requirements", lambda: (["numpy"], [PACKAGE]))
    assert main([str(tmp_path / "environment")]) == 0
    assert f"the GPU tests will fail: no {PACKAGE}" in capsys.readouterr().err


def test_an_interpreter_that_does_not_do_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_environment, "find_spec", lambda name: None)
    assert main([str(tmp_path / "environment")]) == 2
    assert "has no torch" in capsys.readouterr().err
    monkeypatch.setattr(gpu_environment, "OLDEST_PYTHON", (99,))
    with pytest.raises(EnvironmentIncomplete, match=r"it takes 3.11 or newer"):
        prepare(tmp_path / "environment")
    assert not (tmp_path / "environment").exists()


@pytest.mark.usefixtures("with_torch")
def test_a_folder_of_wheels_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentIncomplete, match=r"WHEELS=.*none: no such folder"):
        prepare(tmp_path / "environment", tmp_path / "none")
