"""Heuristics for placement, a file each, and their registry."""
