"""What this process may do to the scheduling of threads; found by trying."""

from __future__ import annotations

import os


def can_raise_priority() -> bool:
    """Try it on this thread and take it back: a capability alone is no proof, since a container may filter the call."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, before - 1)
    except OSError:
        return False
    os.setpriority(os.PRIO_PROCESS, 0, before)
    return True
