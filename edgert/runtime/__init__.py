"""Queues, instances, the pool, the pause of a checkpoint, metrics."""
