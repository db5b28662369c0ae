"""A shell on the board: of this machine (`local`), over SSH, on a serial line. Commands go in, answers come out."""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hardware.verdict import Answer, last_line

COMMAND_S: Final = 60.0
"""The board ends a command that takes longer; its exit status is then 124."""
GRACE_S: Final = 15.0
"""Beyond that the connection counts as lost."""
START_S: Final = 30.0
CONNECT_S: Final = 10
BEGIN: Final = "PATH=/opt/edgert/bin:$PATH:/usr/sbin:/sbin LC_ALL=C; export PATH LC_ALL"
OF_KERNEL: Final = re.compile(r"^\[ *\d+\.\d+\] .*\n", re.MULTILINE)
"""Lines that the kernel writes between those of a command, on a serial line."""


class NoBoard(Exception):
    """No board is reached, or no longer; the message says why."""


class Silence(NoBoard):
    """Raised when nothing comes any more, though the connection is there."""


def as_typed(command: str, mark: str, within_s: float) -> str:
    """The text that runs a command and then prints its mark and exit status. The mark is not in the text as a whole, so
    that an echo of the text is not taken for the end of the answer."""
    first, last = mark.split("-")
    run = f"timeout {within_s:.0f} sh -c {shlex.quote(command)} </dev/null 2>&1"
    return f"{run}; printf '\\n%s-%s %s\\n' {first} {last} $?\n"


def answered(said: str, mark: str) -> tuple[int, str] | None:
    """Finds exit status and output of a command in what the shell printed; None while the answer is not complete."""
    said = said.replace("\r", "")
    found = re.search(rf"\n{mark} (\d+)\n", said)
    return (int(found[1]), OF_KERNEL.sub("", said[: found.start()])) if found else None


class Shell:
    """A shell that reads commands from one file descriptor and answers on another."""

    def __init__(self, answers: int, commands: int, why_ended: Callable[[], str], close: Callable[[], None]) -> None:
        """`why_ended` tells the reason when the shell has ended."""
        self._answers, self._commands, self._why_ended, self.close = answers, commands, why_ended, close
        self._count = 0

    def greet(self) -> None:
        """Waits for the first answer. Raises `NoBoard`."""
        self.type(f"{BEGIN}\n")
        self.run("true", START_S)

    def run(self, command: str, within_s: float = COMMAND_S) -> Answer:
        """Raises `NoBoard` if the shell ends, or does not answer in time."""
        self._count += 1
        mark = f"end-{self._count}"
        self.type(as_typed(command, mark, within_s))
        said, ends = "", time.monotonic() + within_s + GRACE_S
        while (found := answered(said, mark)) is None:
            said += self.read(ends).decode(errors="replace")
        return Answer(found[0], found[1], time.time())

    def read(self, ends: float) -> bytes:
        """Reads what comes next. Raises `NoBoard` if nothing comes until `ends` (by the monotonic clock)."""
        if not select.select([self._answers], [], [], max(0.0, ends - time.monotonic()))[0]:
            raise Silence("no answer in time")
        try:
            block = os.read(self._answers, 65536)
        except OSError as error:
            raise NoBoard(f"the connection is lost: {error.strerror}") from None
        if not block:
            raise NoBoard(self._why_ended())
        return block

    def type(self, text: str) -> None:
        """Sends text as a user would. Raises `NoBoard`."""
        rest = text.encode()
        try:
            while rest:
                rest = rest[os.write(self._commands, rest) :]
        except OSError as error:
            raise NoBoard(f"the connection is lost: {error.strerror}; {self._why_ended()}") from None


def local(*, sudo: bool = False) -> Shell:
    """A shell of this machine. Raises `NoBoard`."""
    return _of_process(_as_root(sudo).split())


def ssh(target: str, port: int, key: Path | None, known_hosts: Path, *, accept_new: bool, sudo: bool = False) -> Shell:
    """A shell on a board by the system's SSH client; `target` is USER@HOST. The board's host key has to be in
    `known_hosts`, or is written to it if it is the first one of this board (`accept_new`). Raises `NoBoard`."""
    return _of_process(ssh_command(target, port, key, known_hosts, accept_new=accept_new, sudo=sudo))


def ssh_command(
    target: str, port: int, key: Path | None, known_hosts: Path, *, accept_new: bool, sudo: bool
) -> list[str]:
    """The client's command line. It asks nothing."""
    options = {
        "BatchMode": "yes", "ConnectTimeout": CONNECT_S, "ServerAliveInterval": CONNECT_S,
        "UserKnownHostsFile": known_hosts, "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "accept-new" if accept_new else "yes",
    }  # fmt: skip
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-T", "-p", str(port), *given, *(("-i", str(key)) if key else ()), "--", target, _as_root(sudo)]


def host_key(host: str, port: int, known_hosts: Path) -> str:
    """Fingerprints of a board's host keys in a file of known hosts; empty if it has none."""
    name = host if port == 22 else f"[{host}]:{port}"
    command = ["ssh-keygen", "-l", "-F", name, "-f", str(known_hosts)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return ", ".join(re.findall(r"SHA256:\S+", said))


def _as_root(sudo: bool) -> str:
    return "sudo -n sh" if sudo else "sh"


def _of_process(command: Sequence[str]) -> Shell:
    errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the shell)
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, bufsize=0)
    except FileNotFoundError:
        raise NoBoard(f"needs {command[0]} on this machine") from None
    assert process.stdin is not None
    assert process.stdout is not None

    def why_ended() -> str:
        status = process.wait()
        errors.seek(0)
        return last_line(errors.read().decode(errors="replace")) or f"{command[0]} ended with status {status}"

    def close() -> None:
        process.kill()
        process.wait()
        for file in (process.stdin, process.stdout, errors):
            assert file is not None
            file.close()

    shell = Shell(process.stdout.fileno(), process.stdin.fileno(), why_ended, close)
    try:
        shell.greet()
    except NoBoard:
        close()
        raise
    return shell
