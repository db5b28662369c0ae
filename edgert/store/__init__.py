"""The one database of a gateway: checkpoints, positions, outbox."""
