"""A shell on the board's serial console: the login, then commands as over any other line."""

from __future__ import annotations

import os
import re
import termios
import time
import tty
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hardware.shell import NoBoard, Shell, Silence

SPEEDS: Final = {9600: termios.B9600, 57600: termios.B57600, 115200: termios.B115200, 1500000: termios.B1500000}
"""1500000 is that of boards with an Amlogic or Rockchip processor."""
LOGIN_S: Final = 60.0
QUIET_S: Final = 3.0
"""A board that says nothing for so long is sent another empty line."""
PROMPT: Final = re.compile(r"[#$] $")
ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
REFUSED: Final = re.compile(r"Login incorrect|Authentication failure")
QUIETLY: Final = "stty -echo; PS1= PS2=; unset PROMPT_COMMAND"
"""The shell shows neither a prompt nor what it reads."""


@dataclass(slots=True)
class Login:
    """The way from a console to a shell, without the line: text in, the next thing to type out."""

    user: str
    password: str
    prompt: str = "login:"
    """The end of the line at which the board wants a name."""
    done: bool = False
    _said: str = ""
    _named: bool = False
    """The name was typed, and no password is asked for yet. A prompt that comes now answers our empty line, and the
    name answers it: typed once more it would be taken for the password."""
    _tried: bool = False
    """The password was typed: an earlier attempt may be of somebody else."""

    def hear(self, text: str) -> str:
        """Takes what the board printed; returns what is to be typed now, if anything. Raises `NoBoard`."""
        self._said = (self._said + ESCAPES.sub("", text).replace("\r", ""))[-4096:]
        if self._tried and REFUSED.search(self._said):
            raise NoBoard(f"the login as {self.user} is refused")
        line = self._said.rstrip(" ").rpartition("\n")[2]
        if line.endswith(self.prompt) and not line.startswith("Last "):  # "Last login: ..." is what a shell begins with
            if self._named:
                return ""
            self._named = True
            return self._type(self.user)
        if line.endswith("assword:"):
            self._tried, self._named = True, False
            return self._type(self.password)
        self.done = PROMPT.search(self._said) is not None
        return ""

    def wake(self) -> str:
        """To be typed at a silent line."""
        self._named = False
        return "\n"

    def _type(self, text: str) -> str:
        self._said = ""
        return f"{text}\n"


def serial(device: Path, speed: int, login: Login, *, sudo: bool = False, within_s: float = LOGIN_S) -> Shell:
    """A shell by a serial line. Raises `NoBoard`, also if no login or prompt comes within `within_s`."""
    line = opened(device, speed)
    shell = Shell(line, line, lambda: f"{device} was closed", lambda: os.close(line))
    try:
        _log_in(shell, login, within_s)
        shell.type("exec sudo -n sh\n" if sudo else "exec sh\n")
        _log_in(shell, Login(login.user, login.password, login.prompt), within_s)
        shell.type(f"{QUIETLY}\n")
        shell.greet()
    except NoBoard as error:
        shell.close()
        raise NoBoard(f"{device}: {error}") from None
    return shell


def opened(device: Path, speed: int) -> int:
    """A file descriptor of the line, in raw mode. Raises `NoBoard`."""
    try:
        line = os.open(device, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)  # does not wait for a carrier
    except OSError as error:
        raise NoBoard(f"{device}: {error.strerror}") from None
    try:
        tty.setraw(line)
        mode = termios.tcgetattr(line)
        mode[2] |= termios.CLOCAL | termios.CREAD
        mode[4] = mode[5] = SPEEDS[speed]
        termios.tcsetattr(line, termios.TCSANOW, mode)
    except termios.error as error:
        os.close(line)
        raise NoBoard(f"{device}: expected a serial line: {error.args[-1]}") from None
    os.set_blocking(line, True)
    return line


def _log_in(shell: Shell, login: Login, within_s: float) -> None:
    ends = time.monotonic() + within_s
    shell.type("\n")
    while not login.done:
        try:
            said = shell.read(min(ends, time.monotonic() + QUIET_S))
            answer = login.hear(said.decode(errors="replace"))
        except Silence:
            answer = login.wake()
        if time.monotonic() >= ends:
            raise NoBoard(f"no login and no shell within {within_s:.0f} s")
        shell.type(answer)
