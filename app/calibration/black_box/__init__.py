"""Calibrate an endpoint as a black box: nothing is known but its URL."""
