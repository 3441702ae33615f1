"""Cancellation as written on the command line, and what a seed draws for each request."""

import numpy as np
import pytest

from servetwin.loadtest.options import (
    Cancellation,
    HangUp,
    LoadOptions,
    parse_cancellation,
    parse_give_up,
)
from servetwin.workloads.errors import LoadTestError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("share=0.1,after=5tokens", Cancellation(0.1, HangUp(after_tokens=5))),
        ("after=1token, share=1", Cancellation(1.0, HangUp(after_tokens=1))),
        ("share=.5,after=200ms", Cancellation(0.5, HangUp(after_s=0.2))),
        ("share=.5,after=2s", Cancellation(0.5, HangUp(after_s=2.0))),
    ],
)
def test_cancellation_as_people_write_it(text: str, expected: Cancellation) -> None:
    assert parse_cancellation(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--cancel: '' is not share=P or after=N"),
        ("share=0.1", "needs share and after"),
        ("after=5tokens", "needs share and after"),
        ("share=0.1,after=5tokens,when=now", "unknown part 'when=now'"),
        *((f"share={s},after=1s", f"share '{s}' is not above 0") for s in ("0", "1.1", "x", "-1")),
        *(
            (f"share=1,after={a}", f"after '{a}': not in tokens, ms or s")
            for a in ("5", "0tokens", "0ms", "1h", "", "-5ms")
        ),
    ],
)
def test_cancellation_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        parse_cancellation(text)
    assert message in str(caught.value)
    assert "write for example share=0.1,after=5tokens" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10.0), ("500ms", 0.5), (" 1.5 min ", 90.0), (".5s", 0.5), ("never", None)],
)
def test_give_up_as_people_write_it(text: str, seconds: float | None) -> None:
    assert parse_give_up(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "0s", "-1s", "1h", "nan s", "nevr", f"{'9' * 400}s"])
def test_give_up_that_cannot_be_read(text: str) -> None:
    with pytest.raises(LoadTestError, match="write for example 10s, or never") as caught:
        parse_give_up(text)
    assert str(caught.value).startswith(f"--give-up-after {text!r}: ")


def test_the_share_is_drawn_by_request_and_by_nothing_else() -> None:
    def hits(seed: int) -> list[bool]:
        options = LoadOptions(cancellation=Cancellation(0.3, HangUp(after_tokens=1)), seed=seed)
        return [options.hang_up(f"r{n}") is not None for n in range(3000)]

    hit = hits(7)
    assert abs(np.mean(hit) - 0.3) < 4 * np.sqrt(0.3 * 0.7 / len(hit))
    assert hits(7) == hit
    assert hits(8) != hit
