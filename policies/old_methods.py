"""Old method names of schedulers and memories, understood for one version with a warning."""

import warnings

OLD_METHODS = {
    "cut_by": "changes_batch",
    "quiet_steps": "repeatable_steps",
}


def adopt_old_methods(cls: type) -> None:
    """Set each renamed method of a user's class from the old one, where only that is defined.

    A base class of this package gets the old name too, so that ``super().quiet_steps(batch)``
    still works. Warns with ``DeprecationWarning``, naming the old and the new method.
    """
    own = [base for base in cls.__mro__ if not _is_shipped(base)]
    for old, new in OLD_METHODS.items():
        if any(new in vars(base) for base in own):
            continue
        if not any(old in vars(base) for base in own):
            continue
        for base in cls.__mro__:
            if _is_shipped(base) and new in vars(base):
                setattr(base, old, vars(base)[new])
        setattr(cls, new, getattr(cls, old))
        warnings.warn(
            f"{cls.__qualname__}.{old} is now called {new}", DeprecationWarning, stacklevel=2
        )


def _is_shipped(cls: type) -> bool:
    return cls.__module__ == "builtins" or cls.__module__.partition(".")[0] == "policies"
