"""Fleets: replicas that come and go, behind a gateway."""
