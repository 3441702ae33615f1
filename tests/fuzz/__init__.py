"""Fuzzers: each draws bad inputs from a seed, and says how to draw the one that failed again."""
