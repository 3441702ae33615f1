"""What would happen: a SimPy server under the real policies, on a calibrated step-time model."""

from sim.core.simulate import simulate
from sim.experiments.predict import Interval, Prediction, predict, predict_once
from sim.records.metrics import SLO, summarize
from sim.records.run import Run, load_run
from sim.step_times.profile import Profile, load_profile
from sim.step_times.step_time import ApiLatency, LinearStepTime, StepTime

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
