"""Why a prediction differs from a measurement, by competing hypotheses."""
