"""Models and devices: shapes, data sheets, and the catalogues of both."""

from sim.shapes.catalogue import find_hardware as find_hardware
from sim.shapes.catalogue import find_model as find_model
from sim.shapes.catalogue import shipped_hardware as shipped_hardware
from sim.shapes.catalogue import shipped_models as shipped_models
from sim.shapes.feed_forward import Dense as Dense
from sim.shapes.feed_forward import Experts as Experts
from sim.shapes.feed_forward import FeedForward as FeedForward
from sim.shapes.hardware import Hardware as Hardware
from sim.shapes.hardware import Precision as Precision
from sim.shapes.hf_config import model_from_hf_config as model_from_hf_config
from sim.shapes.mixers import Attention as Attention
from sim.shapes.mixers import LatentAttention as LatentAttention
from sim.shapes.mixers import Mixer as Mixer
from sim.shapes.mixers import Recurrence as Recurrence
from sim.shapes.model import LayerGroup as LayerGroup
from sim.shapes.model import ModelShape as ModelShape
