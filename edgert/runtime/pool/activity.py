"""A record of a slot's present work, which its daemon can read after the slot has died: shared memory with one place
per thread."""

from __future__ import annotations

import mmap
import os
import threading
from itertools import count
from typing import Final

PLACES: Final = 64
"""Threads; more share the last place."""
_BYTES: Final = 8


class Doing:
    """The numbers of the runs (see `edgert.links.frames`) that threads work for; 0: for none."""

    def __init__(self, descriptor: int) -> None:
        """On what `shared` made, here or in another process."""
        self.descriptor = descriptor
        self._numbers = memoryview(mmap.mmap(descriptor, PLACES * _BYTES)).cast("Q")
        self._mine = threading.local()
        self._places = count()

    @classmethod
    def shared(cls) -> Doing:
        """In new memory."""
        descriptor = os.memfd_create("edgert-slot")
        os.ftruncate(descriptor, PLACES * _BYTES)
        return cls(descriptor)

    def begin(self, number: int) -> None:
        """This thread works for run `number` from now on."""
        try:
            place: int = self._mine.place
        except AttributeError:
            place = self._mine.place = min(next(self._places), PLACES - 1)
        self._numbers[place] = number

    def numbers(self) -> set[int]:
        """The runs that are worked for, or were when the process died."""
        return set(self._numbers) - {0}

    def close(self) -> None:
        """The memory goes when the last process that has it does so."""
        os.close(self.descriptor)
