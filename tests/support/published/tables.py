"""All tables of the notes that figures here are compared with: the public generators, by name."""

from collections.abc import Callable, Iterator
from inspect import isgeneratorfunction

from tests.support.published import (
    compression,
    deployment,
    frameworks,
    intensity,
    lecture,
    models,
    overview,
)
from tests.support.published.claim import Claim

_MODULES = (overview, lecture, compression, frameworks, intensity, deployment, models)
TABLES: dict[str, Callable[[], Iterator[Claim]]] = {
    name: value
    for module in _MODULES
    for name, value in vars(module).items()
    if isgeneratorfunction(value) and value.__module__ == module.__name__
}
