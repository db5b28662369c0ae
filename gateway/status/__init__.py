"""Status for people and for Prometheus."""
