"""API keys and extra headers that cannot be used."""

import pytest

from loadtest.credentials import use_headers, use_key_of
from workloads.errors import LoadTestError


@pytest.mark.parametrize("line", ["X-Team", ": blue", "X-Team:", "X Team: blue", "X: a\nY: b"])
def test_headers_that_are_none(line: str) -> None:
    with pytest.raises(LoadTestError) as caught:
        use_headers(["X-Fine: yes", line])
    assert str(caught.value) == (
        "--header number 2 is no header; write 'NAME: VALUE', such as 'X-Team: a'"
    )


def test_a_key_that_is_nowhere() -> None:
    with pytest.raises(LoadTestError) as caught:
        use_key_of("NO_SUCH_KEY")
    assert str(caught.value) == (
        "--api-key-env NO_SUCH_KEY: no such environment variable; put the key into one and give "
        "its name"
    )
