"""Calibrate and verify an endpoint from outside: nothing is known but its URL."""
