"""What a slot is at, as others see it."""

from __future__ import annotations

import subprocess
import sys
import threading

from edgert.runtime.pool.activity import THREADS, Activity


def test_what_a_process_was_at_when_it_died_is_seen_outside() -> None:
    activity = Activity.shared()
    code = """
import os, sys
from edgert.runtime.pool.activity import Activity
activity = Activity(int(sys.argv[1]))
activity.begin(4)
activity.begin(7)
os._exit(1)
"""
    command = [sys.executable, "-c", code, str(activity.descriptor)]
    assert subprocess.run(command, check=False, pass_fds=[activity.descriptor], timeout=60).returncode == 1
    assert activity.numbers() == {7}
    activity.close()


def test_each_thread_has_a_place_and_one_that_is_at_nothing_says_nothing() -> None:
    activity = Activity.shared()
    activity.begin(1)
    for number in range(2, THREADS + 10):
        thread = threading.Thread(target=activity.begin, args=(number,))
        thread.start()
        thread.join()
    assert activity.numbers() == {*range(1, THREADS), THREADS + 9}, "the last number is of many"
    activity.begin(0)
    assert 1 not in activity.numbers()
    activity.close()
