"""What clients ask: requests, traces, readers of the public formats, generators, statistics."""
