"""Upkeep of the tables: small files become few, and what is old or unused is deleted."""
