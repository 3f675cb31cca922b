"""A model endpoint on loopback, and where to find the real programs."""
