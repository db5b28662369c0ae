"""`edgert fleet`: the boards of a fleet, its keys, and the flows that run on several boards."""
