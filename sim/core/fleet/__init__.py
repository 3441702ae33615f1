"""Fleets: replicas that come and go, behind a gateway."""

from servetwin.sim.core.fleet.fleet import Fleet as Fleet
from servetwin.sim.core.fleet.gateway import FleetPlan as FleetPlan
from servetwin.sim.core.fleet.gateway import Gateway as Gateway
