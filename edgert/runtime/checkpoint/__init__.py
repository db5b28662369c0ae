"""Checkpoints of a running flow: capture, packing, restore, and the progress of its input."""
