"""Bytes to rows and back; one file each."""
