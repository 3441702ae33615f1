"""Download buttons for the data of a page."""

from io import BytesIO

import pandas as pd
import streamlit as st


def downloads(frame: pd.DataFrame, name: str) -> None:
    """Draw buttons for ``frame`` as CSV and as Parquet; a file is made when it is pressed."""
    with st.container(horizontal=True):
        st.download_button(
            "Data as CSV", lambda: _csv(frame), f"{name}.csv", "text/csv",
            key=f"{name}_csv", on_click="ignore",
        )  # fmt: skip
        st.download_button(
            "Data as Parquet", lambda: _parquet(frame), f"{name}.parquet",
            "application/vnd.apache.parquet", key=f"{name}_parquet", on_click="ignore",
        )  # fmt: skip


def _csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False).encode()


def _parquet(frame: pd.DataFrame) -> bytes:
    buffer = BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()
