"""What other machines can do that reach the dashboard."""

OPEN_WARNING = (
    "every machine that can reach this dashboard can use it: it has no accounts, and its visitors "
    "can read and delete the runs, and start load tests of the servers that --target names"
)
