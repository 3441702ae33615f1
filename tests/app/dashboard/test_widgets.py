"""Parts that pages share: the wait for controls at rest."""

import time

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from servetwin.app.dashboard import widgets


class Moved(Exception):
    """A control has been moved."""


def test_a_wait_for_rest_ends_as_soon_as_a_control_is_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []

    def moved_at_the_third_look() -> None:
        looks.append(time.monotonic())
        if len(looks) == 3:
            raise Moved

    monkeypatch.setattr(widgets, "end_if_stale", moved_at_the_third_look)
    monkeypatch.setattr(widgets, "_REST_S", 60.0)
    with pytest.raises(Moved):
        widgets.await_rest()
    assert len(looks) == 3


def test_controls_that_are_not_moved_are_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[None] = []
    monkeypatch.setattr(widgets, "end_if_stale", lambda: looks.append(None))
    begun_s = time.monotonic()
    widgets.await_rest()
    assert time.monotonic() - begun_s >= widgets._REST_S
    assert looks
