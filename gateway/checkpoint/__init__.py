"""When checkpoints are made, and what they need."""
