"""A fixture of all readers: text becomes a trace file."""

from pathlib import Path

import pytest

from tests.support.trace_rows import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "some.trace"
        path.write_text(text)
        return path

    return write
