"""What is old is looked at seldom, what is young as ever."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from edgert.runtime.interpreter import EVERY_S, Garbage

looks = []
gc.callbacks.append(lambda phase, info: phase == "start" and looks.append(info["generation"]))
garbage = Garbage(0.0)
assert looks == [2]
state = [[number] for number in range(300_000)]
assert 0 in looks and 1 in looks and looks.count(2) == 1, looks.count(2)
garbage.look(EVERY_S - 1, 0)
assert looks.count(2) == 1
for _ in range(2):
    garbage.look(EVERY_S, 0)
assert looks.count(2) == 2
"""


def test_state_that_grows_is_not_looked_at_until_it_is_time() -> None:
    """In a process of its own: the collector is the process's."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
