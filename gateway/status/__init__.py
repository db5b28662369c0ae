"""What people and Prometheus are shown."""
