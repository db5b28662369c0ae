"""Hosts of flows: this process, or slots."""
