"""Metrics and scheduling policies: from what a driver reports to a priority per operator."""
