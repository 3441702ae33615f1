"""``KEY=VALUE`` as people write it, for a setting, a limit, or the parameters behind a name.

And the numbers in it: what is none, or not finite, is NaN, which is in no range.
"""

from collections.abc import Iterable
from math import nan

from servetwin.workloads.errors import PolicyError, ServetwinError

# Seconds, tokens per second and scales end far below.
MOST_NUMBER = 1e12


def number_in(text: str) -> float:
    """Return the number that ``text`` is, at most ``MOST_NUMBER`` on either side of 0; else NaN."""
    try:
        number = float(text) if text.isascii() else nan
    except ValueError:
        return nan
    return number if abs(number) <= MOST_NUMBER else nan


def share_in(text: str) -> float:
    """Return the share that ``5%`` or ``0.05`` stands for; NaN where it is no number."""
    return number_in(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def key_value(
    text: str, where: str, error: type[ServetwinError] = PolicyError, form: str = "KEY=VALUE"
) -> tuple[str, str]:
    """Return the key and the value of ``text``, without the spaces around them.

    Raises ``error`` that names ``where`` and the ``form`` to write.
    """
    key, equals, value = text.partition("=")
    if len(text.strip().splitlines()) > 1:
        raise error(f"{where}: {text.strip()!r} has several lines; write {form} in one")
    if not (equals and key.strip()):
        raise error(f"{where}: {text.strip()!r} is not {form}")
    return key.strip(), value.strip()


def key_values(
    text: str | Iterable[str],
    where: str,
    error: type[ServetwinError] = PolicyError,
    form: str = "KEY=VALUE",
) -> dict[str, str]:
    """Return the values by key of ``KEY=VALUE,KEY=VALUE``, or of several texts ``KEY=VALUE``.

    Raises as ``key_value`` does, and for a key that is given twice.
    """
    values: dict[str, str] = {}
    for part in filter(None, text.split(",")) if isinstance(text, str) else text:
        key, value = key_value(part, where, error, form)
        if key in values:
            raise error(f"{where}: {key} is given twice; give it once")
        values[key] = value
    return values
