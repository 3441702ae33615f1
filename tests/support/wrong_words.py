"""Bad input and what is said of it, as ``wrong_words.yaml`` lists it."""

from pathlib import Path
from typing import Any

import yaml


def wrong_words(of: str) -> list[Any]:
    """Return pairs of a text and the message: of ``scenarios``, ``axes`` or ``settings``."""
    pairs: list[Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())[of]
    return pairs
