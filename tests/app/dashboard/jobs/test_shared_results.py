"""Values that sessions share: computed once, by another where the first is ended."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from servetwin.app.dashboard.jobs.job import Job
from servetwin.app.dashboard.jobs.shared_results import SharedResults
from tests.app.dashboard.jobs.test_job import ended


class Stale(BaseException):
    """As Streamlit ends a script."""


def always() -> None: ...


def test_a_value_is_made_once_for_all_that_ask() -> None:
    once: SharedResults[str, int] = SharedResults(8)
    begun, go, made = Event(), Event(), []

    def make() -> int:
        begun.set()
        assert go.wait(30)
        made.append(1)
        return 7

    with ThreadPoolExecutor(8) as sessions:
        first = sessions.submit(once.get, "a", make, always)
        assert begun.wait(30)
        others = [sessions.submit(once.get, "a", make, always) for _ in range(7)]
        assert once.get("b", lambda: 8, always) == 8  # another value does not wait
        go.set()
        assert [each.result(30) for each in (first, *others)] == [7] * 8
    assert made == [1]


def test_where_one_is_ended_the_next_makes_it() -> None:
    once: SharedResults[str, int] = SharedResults(8)
    begun, go = Event(), Event()

    def ended() -> int:
        begun.set()
        assert go.wait(30)
        raise Stale

    with ThreadPoolExecutor(2) as sessions:
        first = sessions.submit(once.get, "a", ended, always)
        assert begun.wait(30)
        second = sessions.submit(once.get, "a", lambda: 7, always)
        go.set()
        assert isinstance(first.exception(30), Stale)
        assert second.result(30) == 7


def test_a_session_that_has_moved_on_waits_no_longer() -> None:
    once: SharedResults[str, int] = SharedResults(8)
    begun, go = Event(), Event()

    def stale() -> None:
        raise Stale

    def make() -> int:
        begun.set()
        assert go.wait(30)
        return 7

    with ThreadPoolExecutor(1) as sessions:
        first = sessions.submit(once.get, "a", make, always)
        assert begun.wait(30)
        with pytest.raises(Stale):
            once.get("a", make, stale)
        go.set()
        assert first.result(30) == 7


def test_the_newest_are_kept() -> None:
    once: SharedResults[int, int] = SharedResults(2)
    made = []

    def make(key: int) -> int:
        made.append(key)
        return key

    for key in (1, 2, 3, 3, 2, 1):
        assert once.get(key, lambda key=key: make(key), always) == key  # type: ignore[misc]
    assert made == [1, 2, 3, 1]


def test_what_weighs_more_leaves_room_for_less_and_the_newest_stays() -> None:
    once: SharedResults[str, int] = SharedResults(10, lambda value: value)
    made: list[int] = []

    def get(weight: int) -> None:
        once.get(f"{weight}", lambda: made.append(weight) or weight, always)  # type: ignore[func-returns-value]

    for weight in (3, 4, 3, 4, 5, 4, 5, 3, 99, 99):
        get(weight)
    assert made == [3, 4, 5, 3, 99]


def test_the_oldest_goes_first() -> None:
    kept = SharedResults[str, str](2)
    for key in "abc":
        kept.keep(key, key.upper())
    assert kept.of({0: "a", 4: "b", 7: "c"}) == {4: "B", 7: "C"}


def test_an_item_with_a_key_is_computed_once(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    keys = [f"{folder} once" for folder in folders]
    assert ended(Job(Path.mkdir, folders, keys=keys)).problem is None
    same = Job(Path.mkdir, folders, keys=keys)
    assert same.results.keys() == {0, 1}, "they are there before it begins"
    assert not same.is_running, "nothing is left to compute"
    again = Job(Path.mkdir, [*folders, tmp_path / "c"], keys=[*keys, f"{tmp_path} c"])
    assert ended(again).problem is None, "a folder that is made twice would be one"
    assert again.results.keys() == {0, 1, 2}
    assert "exists" in str(ended(Job(Path.mkdir, folders)).problem), "without keys all is computed"
