"""Runs on a virtual clock: what scheduling does to a flow, without the machine."""
