"""Typed expressions: text to tree to one compiled Python function."""
