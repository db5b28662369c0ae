"""A flow that runs: its instances, the pool that works them, its checkpoints, slots, and metrics."""
