"""Leases of coordinators: grants of a majority of the fleet's boards, and what is remembered of each flow by them."""
