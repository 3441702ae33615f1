"""Servers with an exact answer: the simulator, set up as each, must meet its theory."""
