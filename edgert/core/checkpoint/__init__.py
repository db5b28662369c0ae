"""Checkpoints: the record of one, and the position of a flow in each of its inputs."""
