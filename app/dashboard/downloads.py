"""Download buttons for the data of a page."""

from functools import partial

import pandas as pd
import streamlit as st


def downloads(frame: pd.DataFrame, name: str) -> None:
    """Draw buttons for ``frame`` as CSV and as Parquet; a file is made when it is pressed."""
    with st.container(horizontal=True):
        for kind, (ending, media_type, packed) in _KINDS.items():
            st.download_button(
                f"Data as {kind}", partial(packed, frame), f"{name}.{ending}", media_type,
                key=f"{name}_{ending}", on_click="ignore",
            )  # fmt: skip


def _parquet(frame: pd.DataFrame) -> bytes:
    return frame.to_parquet(index=False)


_KINDS = {
    "CSV": ("csv", "text/csv", lambda frame: frame.to_csv(index=False).encode()),
    "Parquet": ("parquet", "application/vnd.apache.parquet", _parquet),
}
