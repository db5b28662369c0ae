"""Numbers of new epochs: the random part comes from the operating system."""

from __future__ import annotations

import secrets

from edgert.core.ids import epoch_ordinal, make_epoch


def first_epoch() -> int:
    """The epoch of a flow that had none."""
    return make_epoch(1, secrets.randbits(32))


def epoch_after(epoch: int) -> int:
    """An epoch that comes after another."""
    return make_epoch(epoch_ordinal(epoch) + 1, secrets.randbits(32))
