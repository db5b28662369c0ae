"""Alerts: rules in a document, and the Spark streams that raise and clear alerts by them."""
