"""Flows of the whole fleet, from the agent of one board: deployed, placed, moved, drained, and removed."""
