"""What a slot is at, as others see it."""

from __future__ import annotations

import subprocess
import sys
import threading

from edgert.runtime.pool.activity import PLACES, Doing


def test_what_a_process_was_at_when_it_died_is_seen_outside() -> None:
    doing = Doing.shared()
    code = """
import os, sys
from edgert.runtime.pool.activity import Doing
doing = Doing(int(sys.argv[1]))
doing.begin(4)
doing.begin(7)
os._exit(1)
"""
    command = [sys.executable, "-c", code, str(doing.descriptor)]
    assert subprocess.run(command, check=False, pass_fds=[doing.descriptor], timeout=60).returncode == 1
    assert doing.numbers() == {7}
    doing.close()


def test_each_thread_has_a_place_and_one_that_is_at_nothing_says_nothing() -> None:
    doing = Doing.shared()
    doing.begin(1)
    for number in range(2, PLACES + 10):
        thread = threading.Thread(target=doing.begin, args=(number,))
        thread.start()
        thread.join()
    assert doing.numbers() == {*range(1, PLACES), PLACES + 9}, "the last place is of many"
    doing.begin(0)
    assert 1 not in doing.numbers()
    doing.close()
