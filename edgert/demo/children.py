"""Child processes of the demo: started on a leash, watched, ended in order."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from edgert.central.spark.die_with_parent import leashed
from edgert.core.errors import EdgertError

STOP_S = 10.0
_TAIL_BYTES = 16_384


class ChildError(EdgertError):
    """A child ended that should not have; the message shows its last lines and its log."""


class Child:
    """One child process, its standard output and error in one log file.

    It gets a session of its own, so that a Ctrl-C at the terminal reaches only the demo, which then ends its children
    in order. Should the demo be killed, the kernel kills the child.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._folder = folder
        self._command = list(command)
        self._env = dict(env) if env is not None else None
        self._process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        """Monotonic seconds."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Starts it. To be called from the main thread: the leash is bound to the thread that starts the child."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            output.write(f"---- {time.strftime('%Y-%m-%d %H:%M:%S')} {self.name}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                leashed(self._command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._folder,
                start_new_session=True,
            )
        self.started_at = time.monotonic()

    def status(self) -> int | None:
        """The exit status, or None while it runs (or before it was started)."""
        return self._process.poll() if self._process else None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, patience_s: float = STOP_S) -> int | None:
        """SIGTERM, then SIGKILL for it and all it started. Returns the exit status; None if it never ran."""
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                pass
        self._end_session()
        return self._process.wait()

    def _end_session(self) -> None:
        """Ends processes that the child left behind (Spark's Java)."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def last_lines(self) -> list[str]:
        """The end of its log, of this start only."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        starts = [index for index, line in enumerate(lines) if line.startswith("---- ")]
        return lines[(starts[-1] + 1 if starts else 0) :][-12:]

    def obituary(self) -> str:
        """Why the demo cannot go on: which child, its status, the end of its log and where to read more."""
        status = self.status() or 0
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        lines = "".join(f"\n    {line}" for line in self.last_lines()) or "\n    (it said nothing)"
        return f"{self.name} {how}; its last lines:{lines}\n  all of it: {self.log}"


def stop_all(children: Iterable[Child], hurry: Callable[[], bool] = lambda: False) -> list[str]:
    """Ends them one after the other; with `hurry` true, at once. Returns the names of those that had to be killed."""
    killed = []
    for child in children:
        was_running = child.is_running()
        status = child.stop(0.0 if hurry() else STOP_S)
        if was_running and status == -signal.SIGKILL:
            killed.append(child.name)
    return killed
