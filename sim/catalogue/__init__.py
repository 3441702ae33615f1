"""Models and devices: shapes, data sheets, and the catalogues of both."""

from servetwin.sim.catalogue.catalogue import find_hardware as find_hardware
from servetwin.sim.catalogue.catalogue import find_model as find_model
