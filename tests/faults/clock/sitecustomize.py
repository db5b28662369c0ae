"""Python imports a module of this name at its start. A process that has this folder in PYTHONPATH tells the wall clock
with an offset added: the double, in seconds, that the file named in EDGERT_FAULTS_CLOCK holds at that moment.

So a clock steps without root, and for one process alone. (libfaketime 0.9.10 was tried: with it, `time.sleep` fails
with EINVAL after a step.)
"""

from __future__ import annotations

import mmap
import os
import struct
import time

_wall = time.time
_offset = struct.Struct("d")
with open(os.environ["EDGERT_FAULTS_CLOCK"], "rb") as _file:
    _shared = mmap.mmap(_file.fileno(), _offset.size, access=mmap.ACCESS_READ)


def _stepped() -> float:
    offset: float = _offset.unpack_from(_shared)[0]
    return _wall() + offset


time.time = _stepped
