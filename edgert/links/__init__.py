"""Ordered streams of frames between the processes of one board."""
