"""To come."""


def page() -> None:
    """Draw the page."""
