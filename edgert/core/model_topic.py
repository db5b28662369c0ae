"""Where a model is published: to one gateway, or to all of a fleet."""

from __future__ import annotations


def model_topic(fleet: str, name: str, gateway: str = "") -> str:
    """Where the model `name` stands (retained) for one gateway; without a gateway: for all of the fleet.

    "+" as name gives the filter of all.
    """
    return f"edgert/v1/{fleet}/{gateway}/models/{name}" if gateway else f"edgert/v1/{fleet}/@models/{name}"
