"""Spark on this machine."""
