"""`edgert top`: what each operator and each thread of a running gateway does, live."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from edgert.cli._control import add_socket, connect
from edgert.cli._numbers import number
from edgert.cli.top.view import lines

HELP = "show live what each operator and each thread of the gateway on this board does; q or Ctrl-C ends it"
CLEAR: Final = "\x1b[H\x1b[2J"
SCREEN_ON, SCREEN_OFF = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The terminal's other screen, without a cursor; back to the first."""
every: Final = number(0.1, 3600, "seconds")
"""The type of a time between two readings."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--once", action="store_true", help="print one reading and end")
    parser.add_argument("--json", action="store_true", help="print raw figures, a JSON object per line")
    parser.add_argument(
        "--every",
        type=every,
        default=2.0,
        metavar="S",
        help="time between two readings (2); slots report each second",
    )


def run(args: argparse.Namespace) -> int:
    with connect(args) as client:
        watch(args, lambda: client.call("figures"), lines, args.json)
    return 0


def watch(
    args: argparse.Namespace, read: Callable[[], Any], lines: Callable[[Any, Any], list[str]], raw: bool = False
) -> None:
    """Shows readings until a key ends it, or one of them with `--once`. `lines`: of the last reading and this one."""
    live = not (args.once or raw) and sys.stdin.isatty() and sys.stdout.isatty()
    with screen() if live else contextlib.nullcontext():
        before = read()
        if live:
            show(lines(before, before))
        while not quits(args.every, live):
            now = read()
            if live:
                show(lines(before, now))
            elif raw:
                print(json.dumps(now), flush=True)
            else:
                print("\n".join(lines(before, now)), end="\n" if args.once else "\n\n", flush=True)
            before = now
            if args.once:
                break


def show(text: Sequence[str]) -> None:
    """Prints as many lines as the terminal has room for."""
    columns, rows = shutil.get_terminal_size()
    shown = [line[:columns] for line in text[: rows - 1]]
    sys.stdout.write(CLEAR + "\r\n".join(shown))
    sys.stdout.flush()


@contextlib.contextmanager
def screen() -> Iterator[None]:
    """Keys come one by one, and the terminal is as before afterwards."""
    import termios
    import tty

    kept = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    sys.stdout.write(SCREEN_ON)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)
        sys.stdout.write(SCREEN_OFF)
        sys.stdout.flush()


def quits(wait_s: float, live: bool) -> bool:
    """Waits so long, or until the key q."""
    import select

    ends = time.monotonic() + wait_s
    while (left := ends - time.monotonic()) > 0:
        if not live:
            time.sleep(left)
        elif select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 64) in (b"q", b"Q", b""):
            return True
    return False
