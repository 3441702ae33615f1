"""What would happen: a SimPy server under the real policies, on a calibrated step-time model."""
