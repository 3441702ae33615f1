"""Links between devices: machines by name, and curves by message size as people measure them."""

from servetwin.sim.catalogue.links.curves import MeasuredLink as MeasuredLink
from servetwin.sim.catalogue.links.reading import find_link as find_link
from servetwin.sim.catalogue.links.reading import known_machines as known_machines
