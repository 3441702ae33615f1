"""A redirect names its target, without what may be secret in it."""

import httpx
import pytest

from servetwin.loadtest.redirect import redirect_target

ASKED = httpx.Request("POST", "http://h:8000/v1/completions")


@pytest.mark.parametrize(
    ("status", "location", "target"),
    [
        (307, "https://other.example/v1/completions", "https://other.example/v1/completions"),
        (301, "/v1/completions/", "http://h:8000/v1/completions/"),
        (302, "https://u:pw@login.example/in?state=a1b2#top", "https://login.example/in"),
        (302, "http://h:port/in?x=1", "http://h:port/in"),
        (302, None, ""),
        (201, "/v1/made", ""),
    ],
)
def test_targets(status: int, location: str | None, target: str) -> None:
    headers = {} if location is None else {"location": location}
    assert redirect_target(httpx.Response(status, headers=headers, request=ASKED)) == target
