"""The version says which build of the core runs."""

from servetwin.policies import lockstep
from servetwin.workloads.program.package import own_version
from tests.support.command import servetwin


def test_the_command_line_names_version_and_build() -> None:
    is_pure = (lockstep.__file__ or "").endswith(".py")
    build = "pure Python: SERVETWIN_PURE is set" if is_pure else "compiled"
    assert servetwin("--version") == (0, f"servetwin {own_version()} ({build})\n", "")


def test_a_command_beside_it_is_not_run() -> None:
    assert servetwin("--version", "replay", "nowhere.jsonl").code == 0
