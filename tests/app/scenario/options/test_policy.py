"""Options of policies, laid over what a server has by itself."""

import pytest

from servetwin.app.scenario.options.policy import PolicyOptions, parse_kv_tokens
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import PolicyError


def test_options_are_laid_over_the_profile_and_only_where_given() -> None:
    base = PolicyConfig(kv_tokens=4096, prefix_cache=True)
    assert PolicyOptions().over(base) == base
    changed = PolicyOptions(kv="contiguous", wait_limit_ms=20).over(base)
    assert (changed.kv, changed.prefix_cache, changed.wait_limit_s) == ("contiguous", False, 0.02)
    assert parse_kv_tokens("512") == 512
    with pytest.raises(PolicyError):
        parse_kv_tokens("1e3")


@pytest.mark.parametrize("text", ["²", "9" * 5000, "-1", ""])
def test_tokens_that_no_memory_holds_are_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="is neither a number of tokens nor 'unlimited'"):
        parse_kv_tokens(text)
