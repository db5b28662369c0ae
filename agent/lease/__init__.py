"""Leases of coordinators: which boards vote and how that changes, their grants, and what they remember of each flow."""
