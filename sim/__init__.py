"""What would happen: a SimPy server under the real policies, on a calibrated step-time model."""

from sim.metrics import SLO, summarize
from sim.predict import Interval, Prediction, predict, predict_once
from sim.profile import Profile, load_profile
from sim.run import Run, load_run
from sim.simulate import simulate
from sim.step_time import ApiLatency, LinearStepTime, StepTime

__all__ = [
    "SLO",
    "ApiLatency",
    "Interval",
    "LinearStepTime",
    "Prediction",
    "Profile",
    "Run",
    "StepTime",
    "load_profile",
    "load_run",
    "predict",
    "predict_once",
    "simulate",
    "summarize",
]
