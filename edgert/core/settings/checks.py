"""Limits and checks that settings of several programs share."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from edgert.core.ids import GATEWAY_NAME

PORT: Final = 65535
_INTERFACE: Final = re.compile(r"[A-Za-z0-9_@-]{1,15}(\.[0-9]{1,4})?")


def is_address(text: str) -> bool:
    """True of an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def place_fault(text: str) -> str | None:
    """A check of an address of this board: see `edgert.links.local_address`."""
    if is_address(text) or (_INTERFACE.fullmatch(text) and text != "localhost"):
        return None
    return "an IP address, a network interface, or default, as packets go to addresses, not to names"


def gateway_name(text: str) -> str | None:
    """A check of a gateway's name, which becomes one level of a topic."""
    fits = not text or GATEWAY_NAME.fullmatch(text)
    return None if fits else "1 to 63 letters, digits, '_', '.' or '-', a letter or digit first"


def fleet_name(text: str) -> str | None:
    """A check of a name that has to be given."""
    return "a name, not nothing" if not text else gateway_name(text)
