"""Exact results for simple servers: what the simulator must meet where its settings degenerate."""
