"""What would happen: a SimPy server under the real policies, on a calibrated step-time model."""

from servetwin.sim.core.simulate import simulate as simulate
from servetwin.sim.experiments.predict import Interval as Interval
from servetwin.sim.experiments.predict import Prediction as Prediction
from servetwin.sim.experiments.predict import predict as predict
from servetwin.sim.records.metrics import SLO as SLO
from servetwin.sim.records.metrics import summarize as summarize
from servetwin.sim.records.run import Run as Run
from servetwin.sim.records.run import load_run as load_run
from servetwin.sim.step_times.profile import Profile as Profile
from servetwin.sim.step_times.profile import load_profile as load_profile
from servetwin.sim.step_times.step_time import ApiLatency as ApiLatency
from servetwin.sim.step_times.step_time import LinearStepTime as LinearStepTime
from servetwin.sim.step_times.step_time import StepTime as StepTime
