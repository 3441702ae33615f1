"""Quotas of tenants at the gateway, before a router sees a request."""

from collections.abc import Mapping
from math import isfinite

from servetwin.policies.protocols import Refusal
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.program.key_values import key_values, number_in
from servetwin.workloads.request import Request

_FORM = "TENANT=TOKENS_PER_S/BURST; write for example acme=2000/60000,*=500/10000, * for any other"
# Stands for each tenant that has no quota by name.
ANY = "*"


def parse_quotas(text: str, where: str = "quotas") -> dict[str, tuple[float, float]]:
    """Return (tokens per second, burst in tokens) by tenant; raises ``PolicyError``."""
    quotas = {}
    for tenant, quota in key_values(text, where, PolicyError, _FORM).items():
        rate, slash, burst = quota.partition("/")
        numbers = number_in(rate), number_in(burst)
        if not slash or not all(isfinite(number) and number > 0 for number in numbers):
            raise PolicyError(f"{where}: {tenant}={quota}: not {_FORM}")
        quotas[tenant] = numbers
    return quotas


class TokenBuckets:
    """A bucket of tokens for each tenant: it fills at a rate up to its burst, requests empty it.

    A request counts as long as it declares to become, prompt and output together, as providers
    count a limit of tokens per minute. What the bucket does not hold is refused, not queued.
    """

    def __init__(self, quotas: Mapping[str, tuple[float, float]]) -> None:
        self._quotas = quotas
        # When the bucket of each tenant was last looked at, and the tokens in it then.
        self._levels: dict[str, tuple[float, float]] = {}

    def refusal(self, request: Request, now_s: float) -> Refusal | None:
        """Take the tokens of a request out of its tenant's bucket, or return why it is refused."""
        tenant = request.tenant or ""
        quota = self._quotas.get(tenant, self._quotas.get(ANY))
        if quota is None:
            return None
        rate, burst = quota
        seen_s, level = self._levels.get(tenant, (now_s, burst))
        level = min(burst, level + rate * (now_s - seen_s))
        tokens = request.total_tokens
        is_held = tokens <= level
        self._levels[tenant] = now_s, level - tokens * is_held
        if is_held:
            return None
        reason = f"{tokens} tokens are more than the {level:.0f} left of the burst of {burst:g}"
        return Refusal("over_quota", reason)
