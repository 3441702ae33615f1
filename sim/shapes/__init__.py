"""Models and devices: shapes, data sheets, and the catalogues of both."""

from sim.shapes.catalogue import find_hardware, find_model, shipped_hardware, shipped_models
from sim.shapes.feed_forward import Dense, Experts, FeedForward
from sim.shapes.hardware import Hardware, Precision
from sim.shapes.hf_config import model_from_hf_config
from sim.shapes.mixers import Attention, LatentAttention, Mixer, Recurrence
from sim.shapes.model import LayerGroup, ModelShape

__all__ = [
    "Attention",
    "Dense",
    "Experts",
    "FeedForward",
    "Hardware",
    "LatentAttention",
    "LayerGroup",
    "Mixer",
    "ModelShape",
    "Precision",
    "Recurrence",
    "find_hardware",
    "find_model",
    "model_from_hf_config",
    "shipped_hardware",
    "shipped_models",
]
