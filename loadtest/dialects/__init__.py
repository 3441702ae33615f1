"""How requests are said to servers of each kind, and how their answers are read."""
