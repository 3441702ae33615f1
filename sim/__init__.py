"""What would happen: a SimPy server under the real policies, on a calibrated step-time model."""

from sim.core.simulate import simulate as simulate
from sim.experiments.predict import Interval as Interval
from sim.experiments.predict import Prediction as Prediction
from sim.experiments.predict import predict as predict
from sim.experiments.predict import predict_once as predict_once
from sim.records.metrics import SLO as SLO
from sim.records.metrics import summarize as summarize
from sim.records.run import Run as Run
from sim.records.run import load_run as load_run
from sim.step_times.profile import Profile as Profile
from sim.step_times.profile import load_profile as load_profile
from sim.step_times.step_time import ApiLatency as ApiLatency
from sim.step_times.step_time import LinearStepTime as LinearStepTime
from sim.step_times.step_time import StepTime as StepTime
