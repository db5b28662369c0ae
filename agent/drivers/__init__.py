"""Drivers: each turns the public figures of one stream processing engine into entities and metrics."""
