"""A CSV file that grows row by row, and that a killed process leaves as rows it can go on from."""

import os
from io import BytesIO
from pathlib import Path

import pandas as pd


class AppendedCsv:
    """Rows at ``path``, each appended in one write.

    A process that is killed may leave a last line without its end: it is not read, and the next row
    takes its place.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._whole_bytes = 0
        self._columns: list[str] = []

    def read(self) -> pd.DataFrame | None:
        """Return the whole rows, as texts; None where there is nothing.

        Raises ``OSError`` or ``ValueError`` where the file cannot be read.
        """
        content = self._path.read_bytes() if self._path.exists() else b""
        if not content:
            return None
        self._whole_bytes = content.rfind(b"\n") + 1
        if not self._whole_bytes:
            raise ValueError("no line of it has an end")
        whole = BytesIO(content[: self._whole_bytes])
        frame = pd.read_csv(whole, dtype=str, keep_default_na=False)
        self._columns = list(frame.columns)
        return frame

    def append(self, rows: pd.DataFrame) -> None:
        """Append rows, in the order of the columns that are there; raises ``OSError``.

        They have left this process when this returns: a kill does not lose them.
        """
        begins = not self._whole_bytes
        self._columns = self._columns or list(rows.columns)
        text = rows[self._columns].to_csv(header=begins, index=False).encode()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as file:
            file.truncate(self._whole_bytes)
            file.seek(self._whole_bytes)
            file.write(text)
        self._whole_bytes += len(text)
