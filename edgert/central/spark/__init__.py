"""Spark on this machine: sessions and clusters, jobs under a lease, and the streams that they keep running."""
