"""Names and addresses of machines."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """True if `host` (a name or an address to bind or to connect to) is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
