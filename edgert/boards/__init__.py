"""Boards by the hundred: the fleet's CA, their provisioning files, and what is revoked."""
