"""The requests of a run as CSV: the same columns as in Parquet, lists as JSON.

Figures have all their digits, so that what is read back is the same; what is undefined is empty.
"""

import json

import numpy as np
import pandas as pd


def requests_csv(requests: pd.DataFrame) -> bytes:
    """Return the bytes of ``requests.csv``."""
    cells = {
        name: column.map(_as_json) if column.map(_is_list).any() else column
        for name, column in requests.items()
    }
    return pd.DataFrame(cells, columns=requests.columns).to_csv(index=False).encode()


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _as_json(value: object) -> str:
    return json.dumps(np.asarray(value).tolist()) if _is_list(value) else ""
