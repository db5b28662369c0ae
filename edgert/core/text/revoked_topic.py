"""Where the fleet's list of revoked certificates is published, and how boards tell which one they have."""

from __future__ import annotations

import hashlib


def revoked_topic(fleet: str) -> str:
    """The topic of the list, retained, for all boards of a fleet."""
    return f"edgert/v1/{fleet}/@crl"


def list_digest(content: bytes) -> str:
    """Names a list: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]
