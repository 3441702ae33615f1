"""The lock holds every package that the extras need, in a version that the ranges allow."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from tests.support.lock import canonical, pins
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PIN = re.compile(r"([a-z0-9-]+)==([0-9][0-9a-z.]*)")


def lock() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [PIN.fullmatch(line) for line in lines if not line.startswith("#")]
    return {match[1]: match[2] for match in found if match}


def test_every_line_is_one_package_and_one_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert [line for line in packages if not PIN.fullmatch(line)] == []
    assert packages == sorted(packages, key=lambda line: line.partition("==")[0])
    assert len(lock()) == len(packages) > 90


def test_torch_is_the_one_that_uv_is_given() -> None:
    assert PROJECT["tool"]["uv"]["constraint-dependencies"] == [f"torch=={lock()['torch']}"]
    assert (ROOT / "requirements.txt").read_text().startswith("-c constraints.txt\n")


def test_every_extra_is_locked_with_all_that_it_needs() -> None:
    versions = lock()
    wrong = {
        str(requirement): versions.get(canonical(requirement.name))
        for requirement in needed()
        if not requirement.specifier.contains(versions.get(canonical(requirement.name), "0.dev0"))
    }
    assert wrong == {}


def test_a_lock_has_neither_the_product_nor_the_tag_of_a_local_build() -> None:
    packages = [("torch", "2.13.0+cpu"), ("triton", "3.7.1"), ("MarkupSafe", "3.0.4")]
    packages.append(("servetwin", "0.1.0"))
    resolved = [{"name": name, "version": version} for name, version in packages]
    assert pins(resolved) == ["markupsafe==3.0.4", "torch==2.13.0"]


def needed() -> Iterator[Requirement]:
    """Yield the requirements of all extras, and those of locked packages that are installed here.

    What torch needs is left out, triton too: its CUDA packages differ from build to build.
    """
    versions = lock()
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    waiting = [Requirement(line) for lines in (project["dependencies"], *extras) for line in lines]
    seen = set[tuple[str, str]]()
    while waiting:
        one = waiting.pop()
        if one.name == "triton":
            continue
        yield one
        for extra in ("", *one.extras):
            key = (canonical(one.name), extra)
            if (
                key not in seen
                and key[0] != "torch"
                and _installed(one.name) == versions.get(key[0])
            ):
                seen.add(key)
                waiting += _requirements(one.name, extra)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _requirements(name: str, extra: str) -> list[Requirement]:
    lines = [Requirement(line) for line in requires(name) or []]
    return [one for one in lines if not one.marker or one.marker.evaluate({"extra": extra})]
