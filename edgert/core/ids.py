"""Names and numbers that identify: gateways, flows, operators, epochs."""

from __future__ import annotations

import hashlib
import re
from typing import Final

TABLE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
"""Names that are short and safe as topic level, file name and table name."""
FLOW_NAME: Final = re.compile(rf"(?!.*_v[0-9]+$){TABLE_NAME.pattern}")
"""Flows: `<flow>_v2` is the name of another table of `<flow>`."""
GATEWAY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Gateways, fleets and collectors: one topic level that may be a host name."""
_MACHINE_ID: Final = re.compile(r"[0-9a-fA-F]{32}")
MOST_ORDINAL: Final = 1 << 24
"""Largest ordinal of an epoch that comes out of nothing; no flow is begun anew so often."""
ORDINAL_STEP: Final = 10_000
"""Most epochs that may be missing between two of a flow; with more the later one cannot be true."""
_ORDINAL_BITS: Final = 31
_RANDOM_BITS: Final = 32


def gateway_id(machine_id: str) -> str:
    """The gateway's id, from the text of `/etc/machine-id`: `gw-` and 12 hexadecimal digits.

    The machine id itself is confidential (machine-id(5)), so it is hashed under our name, and stays the same on the
    same installation. Raises `ValueError` if the text is no machine id (a fresh image may have an empty one).
    """
    text = machine_id.strip()
    if not _MACHINE_ID.fullmatch(text) or set(text) == {"0"}:
        raise ValueError(f"expected a machine id of 32 hexadecimal digits, got {len(text)} other characters")
    return "gw-" + hashlib.blake2s(text.lower().encode(), digest_size=6, person=b"edgert").hexdigest()


def make_epoch(ordinal: int, random32: int) -> int:
    """An epoch: epochs of a flow are ordered by `ordinal`; `random32` tells two with the same ordinal apart.

    Fits a signed 64-bit integer. Raises `ValueError` when a part does not fit.
    """
    if not 0 <= ordinal < 1 << _ORDINAL_BITS:
        raise ValueError(f"expected an ordinal from 0 to 2**{_ORDINAL_BITS} - 1, got {ordinal}")
    if not 0 <= random32 < 1 << _RANDOM_BITS:
        raise ValueError(f"expected a random number from 0 to 2**{_RANDOM_BITS} - 1, got {random32}")
    return ordinal << _RANDOM_BITS | random32


def epoch_ordinal(epoch: int) -> int:
    """The ordinal of an epoch: the next epoch of the flow takes one more."""
    return epoch >> _RANDOM_BITS


def is_credible(epoch: int, greatest: int | None, margin: int = 0) -> bool:
    """True if a flow whose `greatest` epoch is known (None: there is none) can have come to `epoch`. A forged one must
    not use up the numbers: it leaves room for more than `margin` others."""
    known = 0 if greatest is None else epoch_ordinal(greatest) + ORDINAL_STEP
    return epoch_ordinal(epoch) + margin <= max(MOST_ORDINAL, known)


COORDINATOR_BITS: Final = 32
"""Lowest bits of a fencing number, and so of the number of a plan that boards share: they name the coordinator."""


def short(plan: int) -> int:
    """The number of a plan as people are told it: without the coordinator's name."""
    return plan >> COORDINATOR_BITS or plan
