"""EEVDF slices of normal threads: sched_setattr(2) and sched_getattr(2), by number, since libc has no wrapper for them.

Linux 6.12 and newer take a `sched_runtime` of 0.1 to 20 ms for a thread of the class SCHED_OTHER: its slice. Nice sets
a thread's share, the slice how soon it gets it. Older kernels take the call and ignore the value, so it is tried.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading
from typing import Final

_ATTR: Final = struct.Struct("<IIQiIQQQII")
"""struct sched_attr, 56 bytes: size, policy, flags, nice, priority, runtime, deadline, period, util_min, util_max."""
_SET_GET: Final = {"x86_64": (314, 315), "aarch64": (274, 275), "armv7l": (380, 381), "armv6l": (380, 381)}
_RUNTIME: Final = 5
_POLICY: Final = 1
NORMAL_POLICIES: Final = (0, 3)
"""SCHED_OTHER and SCHED_BATCH: the classes that have slices."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> None:
    if _libc.syscall(number, *arguments) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def get(tid: int) -> int:
    """The slice of a thread, ns; 0 tells the calling thread. Raises `OSError`; 0 for a real-time thread."""
    attributes = _get(tid)
    return attributes[_RUNTIME] if attributes[_POLICY] in NORMAL_POLICIES else 0


def _get(tid: int) -> list[int]:
    buffer = ctypes.create_string_buffer(_ATTR.size)
    _call(_SET_GET[platform.machine()][1], tid, buffer, _ATTR.size, 0)
    return list(_ATTR.unpack(buffer.raw))


def put(tid: int, slice_ns: int) -> None:
    """Give a thread slices of this length; 0: the kernel's own. Its policy and nice value stay. Raises `OSError`."""
    attributes = _get(tid)
    if attributes[_POLICY] not in NORMAL_POLICIES:
        return
    attributes[0], attributes[_RUNTIME] = _ATTR.size, slice_ns
    _call(_SET_GET[platform.machine()][0], tid, ctypes.create_string_buffer(_ATTR.pack(*attributes), _ATTR.size), 0)


def usual_ns() -> int | None:
    """The kernel's own slice, ns; None if this kernel has no slices that can be set (tried on a thread of its own)."""
    found: list[int | None] = [None]

    def attempt() -> None:
        try:
            put(0, 0)
            usual = get(0)
            wanted = 3_000_000 if usual != 3_000_000 else 2_000_000
            put(0, wanted)
            found[0] = usual if get(0) == wanted else None
        except (OSError, KeyError):
            found[0] = None

    thread = threading.Thread(target=attempt, name="slice-trial")
    thread.start()
    thread.join()
    return found[0]
