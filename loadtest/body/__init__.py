"""The bodies of requests: their model, images, sampling parameters and further fields."""
