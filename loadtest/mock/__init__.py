"""A mock endpoint: streams with given times, fails as planned, and logs what it really did."""
