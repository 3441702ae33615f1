"""Closed forms of transformer inference: intensities, FLOPs, bytes, and the times they bound.

What textbooks and lectures compute by hand, from the same shapes that the simulator uses.
"""
