"""A slot: a process that runs a part of the flows, and its credit towards other slots."""
