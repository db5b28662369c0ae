"""`python -I -S die_with_parent.py PARENT COMMAND...`: becomes COMMAND, which Linux kills when process PARENT ends.

A program of its own and not a `preexec_fn`, because code between fork and exec is unsafe beside threads. PARENT must
be the caller, and it must start this from a thread that lives as long as it does.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def leashed(command: Sequence[str]) -> list[str]:
    """The command to start in place of `command`, so that the kernel ends it with the thread that starts it, and so
    with us."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main() -> None:
    """Binds, and becomes the command. Kept over exec (prctl(2))."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we were bound
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
