"""Explanations: where the time of a request went, why it waited, and beside which requests."""
