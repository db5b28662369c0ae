"""Stored state of flows: records of checkpoints, and the input of stuck flows."""
