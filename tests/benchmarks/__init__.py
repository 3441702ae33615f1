"""How fast it is. Measured by ``make bench``, never by the tests: they assert no seconds."""
