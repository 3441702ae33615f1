"""A class of version 0.1 still runs: its methods are found by their new names, with a warning."""

import warnings
from pathlib import Path

import pytest

from policies.batch import Batch
from policies.config import PolicyConfig
from policies.kv.paged import PagedKV
from policies.lockstep import Lockstep
from policies.old_methods import OLD_METHODS, adopt_old_methods
from policies.protocols import KVMemory
from policies.registry import build_scheduler
from policies.schedulers.continuous import ContinuousBatching
from policies.sequence import Sequence
from sim.core.simulate import simulate
from sim.step_times.step_time import LinearStepTime
from tests.support.checked import request

CONFIG = PolicyConfig()


def old_scheduler() -> type[ContinuousBatching]:
    class Old(ContinuousBatching):
        def cut_by(self, seq: Sequence) -> bool:
            return True

        def quiet_steps(self, batch: Batch) -> int:
            most: int = super().quiet_steps(batch)  # type: ignore[misc]
            return min(2, most)

    return Old


def old_memory() -> type[PagedKV]:
    class OldMemory(PagedKV):
        def quiet_steps(self, lockstep: Lockstep, limit: int) -> int:
            return 1

    return OldMemory


def test_the_old_methods_of_a_scheduler_are_called_by_their_new_names() -> None:
    cls = old_scheduler()
    with pytest.warns(DeprecationWarning, match="is now called") as caught:
        adopt_old_methods(cls)
    said = [str(warning.message) for warning in caught]
    assert len(said) == len(OLD_METHODS)
    for line, (old, new) in zip(said, OLD_METHODS.items(), strict=True):
        assert line.endswith(f"Old.{old} is now called {new}")
    scheduler = cls(PagedKV(CONFIG), CONFIG)
    assert scheduler.changes_batch(Sequence("a", 0.0, 1, 1))
    run = simulate([request("a", output=9)], scheduler, LinearStepTime.of({"constant": 1.0}))
    assert run.steps["steps"].tolist() == [1, 2, 2, 2, 2]


def test_an_old_memory_is_asked_by_the_new_name() -> None:
    cls = old_memory()
    with pytest.warns(DeprecationWarning, match="quiet_steps is now called repeatable_steps"):
        adopt_old_methods(cls)
    memory: KVMemory = cls(CONFIG)
    assert memory.repeatable_steps(Lockstep(16), 9) == 1


def test_a_class_with_both_names_keeps_its_new_method() -> None:
    class Both(ContinuousBatching):
        def quiet_steps(self, batch: Batch) -> int:
            return 1

        def repeatable_steps(self, batch: Batch) -> int:
            return 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adopt_old_methods(Both)
        adopt_old_methods(ContinuousBatching)
    assert Both(PagedKV(CONFIG), CONFIG).repeatable_steps(Batch()) == 2


def test_a_class_inherits_what_its_base_in_the_same_file_calls_by_the_old_name() -> None:
    class Derived(old_memory()):  # type: ignore[misc]
        """Adds nothing."""

    with pytest.warns(DeprecationWarning, match="quiet_steps is now called repeatable_steps"):
        adopt_old_methods(Derived)
    assert Derived(CONFIG).repeatable_steps(Lockstep(16), 9) == 1


def test_a_policy_loaded_by_path_may_have_old_names(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text(
        "from policies.schedulers.continuous import ContinuousBatching\n"
        "class Old(ContinuousBatching):\n"
        "    def quiet_steps(self, batch):\n"
        "        return 1\n"
    )
    with pytest.warns(DeprecationWarning, match="Old.quiet_steps is now called repeatable_steps"):
        scheduler = build_scheduler(PolicyConfig(batching=f"{path}:Old"))
    assert scheduler.repeatable_steps(Batch()) == 1
