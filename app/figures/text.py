"""Texts inside a figure."""


def plain(text: object) -> str:
    """A name from a trace as a figure shows it: plotly reads a few HTML tags, this has none."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;")
