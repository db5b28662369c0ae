"""Cooperation across boards: what agents tell each other so that a priority means the same on all of them."""
