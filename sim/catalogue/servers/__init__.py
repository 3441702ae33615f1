"""Servers as their owners start them: command lines, files and logs of three engines."""

from servetwin.sim.catalogue.servers.reading import read_server as read_server
from servetwin.sim.catalogue.servers.settings import ServerSettings as ServerSettings
