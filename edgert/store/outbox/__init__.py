"""The outbox: results that wait for the central side, their quota, gaps and notices, and batches for other gateways."""
