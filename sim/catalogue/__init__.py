"""Models and devices: shapes, data sheets, and the catalogues of both."""

from servetwin.sim.catalogue.catalogue import find_hardware as find_hardware
from servetwin.sim.catalogue.catalogue import find_model as find_model
from servetwin.sim.catalogue.catalogue import shipped_hardware as shipped_hardware
from servetwin.sim.catalogue.catalogue import shipped_models as shipped_models
from servetwin.sim.catalogue.hardware import Hardware as Hardware
from servetwin.sim.catalogue.hardware import Precision as Precision
from servetwin.sim.catalogue.hf_config import model_from_hf_config as model_from_hf_config
from servetwin.sim.catalogue.layers import Attention as Attention
from servetwin.sim.catalogue.layers import Dense as Dense
from servetwin.sim.catalogue.layers import Experts as Experts
from servetwin.sim.catalogue.layers import FeedForward as FeedForward
from servetwin.sim.catalogue.layers import LatentAttention as LatentAttention
from servetwin.sim.catalogue.layers import Mixer as Mixer
from servetwin.sim.catalogue.layers import Recurrence as Recurrence
from servetwin.sim.catalogue.model import LayerGroup as LayerGroup
from servetwin.sim.catalogue.model import ModelShape as ModelShape
