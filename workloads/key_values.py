"""``KEY=VALUE`` as people write it, for a setting, a limit, or the parameters behind a name."""

from workloads.errors import PolicyError, ServetwinError


def key_value(
    text: str, where: str, error: type[ServetwinError] = PolicyError, form: str = "KEY=VALUE"
) -> tuple[str, str]:
    """Return the key and the value of ``text``, without the spaces around them.

    Raises ``error`` that names ``where`` and the ``form`` to write.
    """
    key, equals, value = text.partition("=")
    if len(text.strip().splitlines()) > 1:
        raise error(f"{where}: {text.strip()!r} has several lines; write {form} in one")
    if not equals:
        raise error(f"{where}: {text.strip()!r} is not {form}")
    return key.strip(), value.strip()


def key_values(
    text: str, where: str, error: type[ServetwinError] = PolicyError, form: str = "KEY=VALUE"
) -> dict[str, str]:
    """Return the values by key of ``KEY=VALUE,KEY=VALUE``; the last one of a key counts.

    Raises as ``key_value`` does.
    """
    parts = filter(None, text.split(","))
    return dict(key_value(part, where, error, form) for part in parts)
