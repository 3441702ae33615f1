"""``python -m servetwin``: the command line."""

from servetwin.app.cli import main

main()
