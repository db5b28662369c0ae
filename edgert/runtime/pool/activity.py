"""A record of a slot's present work, which its daemon can read after the slot has died: shared memory with one number
per thread."""

from __future__ import annotations

import mmap
import os
import threading
from itertools import count
from typing import Final

THREADS: Final = 64
"""Threads with a number of their own; more share the last one."""
_BYTES: Final = 8


class Activity:
    """The numbers of the runs (see `edgert.links.frames`) that threads work for; 0: for none."""

    def __init__(self, descriptor: int) -> None:
        """On what `shared` made, here or in another process."""
        self.descriptor = descriptor
        self._numbers = memoryview(mmap.mmap(descriptor, THREADS * _BYTES)).cast("Q")
        self._mine = threading.local()
        self._next = count()

    @classmethod
    def shared(cls) -> Activity:
        """In new memory."""
        descriptor = os.memfd_create("edgert-slot")
        os.ftruncate(descriptor, THREADS * _BYTES)
        return cls(descriptor)

    def begin(self, number: int) -> None:
        """This thread works for run `number` from now on."""
        try:
            at: int = self._mine.at
        except AttributeError:
            at = self._mine.at = min(next(self._next), THREADS - 1)
        self._numbers[at] = number

    def numbers(self) -> set[int]:
        """The runs that are worked for, or were when the process died."""
        return set(self._numbers) - {0}

    def close(self) -> None:
        """The memory goes when the last process that has it does so."""
        os.close(self.descriptor)
