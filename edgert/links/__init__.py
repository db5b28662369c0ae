"""Ordered streams of frames: over Unix sockets between the processes of one board, over TLS between gateways."""
