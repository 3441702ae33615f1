"""Turns: one at a time, first answers first, in the order of asking; long work gives way."""

import time
from collections.abc import Callable
from threading import Event, Thread

import pytest

from servetwin.app.dashboard.jobs.priority_lock import PriorityLock, Rank, Turn

FIRST, REST = Rank.FIRST_ANSWER, Rank.REST_OF_PAGE


class Stale(BaseException):
    """As Streamlit ends a script."""


def always() -> None: ...


def wait(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.001)


class Sessions:
    """Threads that ask for turns in a known order, and the order in which they had them."""

    def __init__(self) -> None:
        self.turns = PriorityLock()
        self.had: list[str] = []
        self.threads: list[Thread] = []

    def ask(self, name: str, rank: Rank, work: Callable[[Turn], None] = lambda _: None) -> None:
        def run() -> None:
            with self.turns.turn(rank, always) as turn:
                self.had.append(name)
                work(turn)
                self.had.append(f"{name} ends")

        waiting = len(self.turns._waiting)
        self.threads.append(Thread(target=run, daemon=True))
        self.threads[-1].start()
        wait(lambda: len(self.turns._waiting) > waiting or name in self.had)

    def join(self) -> list[str]:
        for thread in self.threads:
            thread.join(30)
        return [name for name in self.had if not name.endswith("ends")]


def test_first_answers_come_before_the_rest_each_in_the_order_of_asking() -> None:
    sessions, go = Sessions(), Event()
    sessions.ask("held", REST, lambda _: wait(go.is_set))
    for name, rank in (("a", REST), ("b", FIRST), ("c", REST), ("d", FIRST)):
        sessions.ask(name, rank)
    go.set()
    assert sessions.join() == ["held", "b", "d", "a", "c"]
    assert sessions.had == [word for name in sessions.join() for word in (name, f"{name} ends")]


@pytest.fixture
def soon_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any work is long when it gives way for the first time."""
    monkeypatch.setattr("servetwin.app.dashboard.jobs.priority_lock._LONG_S", 0.0)


@pytest.mark.usefixtures("soon_long")
def test_long_work_gives_way_to_short_work_and_keeps_its_place_among_long_work() -> None:
    sessions, go = Sessions(), Event()

    def long(turn: Turn) -> None:
        wait(go.is_set)
        turn.give_way()

    sessions.ask("long", FIRST, long)
    sessions.ask("rest", REST)
    sessions.ask("also long", FIRST, lambda turn: turn.give_way())
    sessions.ask("short", FIRST)
    go.set()
    sessions.join()
    assert sessions.had == [
        "long", "also long", "short", "short ends", "long ends", "also long ends", "rest",
        "rest ends",
    ]  # fmt: skip


def test_short_work_gives_way_only_to_what_comes_before() -> None:
    sessions, go = Sessions(), Event()

    def work(turn: Turn) -> None:
        wait(go.is_set)
        turn.give_way()

    sessions.ask("work", REST, work)
    sessions.ask("later", REST)
    sessions.ask("first", FIRST)
    go.set()
    sessions.join()
    assert sessions.had == ["work", "first", "first ends", "work ends", "later", "later ends"]


def test_a_session_that_has_moved_on_gives_its_place_up() -> None:
    turns = PriorityLock()

    def stale() -> None:
        raise Stale

    with turns.turn(FIRST, always):
        with pytest.raises(Stale), turns.turn(FIRST, stale):
            raise AssertionError("it had a turn")
        assert not turns._waiting
    with turns.turn(REST, always):
        pass


def test_work_that_is_stale_ends_when_it_gives_way_and_frees_its_turn() -> None:
    turns, is_stale = PriorityLock(), Event()

    def end_if_stale() -> None:
        if is_stale.is_set():
            raise Stale

    def work() -> None:
        with turns.turn(FIRST, end_if_stale) as turn:
            turn.give_way()
            is_stale.set()
            turn.give_way()
            raise AssertionError("it went on")

    with pytest.raises(Stale):
        work()
    with turns.turn(REST, always):
        assert not turns._waiting


@pytest.mark.usefixtures("soon_long")
def test_work_that_becomes_stale_while_it_gives_way_does_not_end_the_turn_of_another() -> None:
    sessions, is_stale, go = Sessions(), Event(), Event()

    def end_if_stale() -> None:
        if is_stale.is_set():
            raise Stale

    def other(_: Turn) -> None:
        is_stale.set()
        wait(go.is_set)

    def work() -> None:
        with sessions.turns.turn(FIRST, end_if_stale) as turn:
            sessions.ask("other", FIRST, other)
            turn.give_way()

    with pytest.raises(Stale):
        work()
    sessions.ask("next", FIRST)
    assert sessions.had == ["other"]
    go.set()
    assert sessions.join() == ["other", "next"]
