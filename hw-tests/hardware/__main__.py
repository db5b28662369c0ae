"""Tests a real board: `make hw-test BOARD=pi4 HOST=192.168.1.20`, or `PYTHONPATH=.:hw-tests python -m hardware --help`.

It asks the board by commands that change nothing. Over the board's broker it deploys a flow, and removes it again.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hardware import physical, system
from hardware.emulated import start
from hardware.message import judge
from hardware.report import DESCRIPTION, NOT_REACHED, HardwareReport, described, not_reached
from hardware.serial_line import SPEEDS, Login, serial
from hardware.shell import NoBoard, Shell, host_key, local, ssh
from hardware.verdict import NO_IMAGE, Answer, HardwareCheck, Verdict, bad, documents, skipped

ROOT: Final = Path(__file__).resolve().parents[2]
BOARDS: Final = sorted(path.stem for path in (ROOT / "images" / "boards").glob("*.toml"))
NONE: Final = "none"
KNOWN_HOSTS: Final = ROOT / "build" / "hw-tests" / "known_hosts"
BROKER_PORT: Final = 1883
Address = tuple[str, int]
"""Host and port."""


def examine(shell: Shell, args: argparse.Namespace, way: str, address: Address | None) -> HardwareReport:
    """Makes all checks. Raises `NoBoard` if the board does not answer at all; later that is bad."""
    board = described(shell.run(DESCRIPTION))
    report = HardwareReport(board, way, datetime.now(UTC).isoformat(timespec="seconds"))
    answers: dict[str, Answer] = {}
    lost = ""
    for check in checks(args):
        if lost:
            report.verdicts[check.name] = skipped(f"no connection since {lost}")
        elif check.of_image and args.board == NONE:
            report.verdicts[check.name] = skipped(NO_IMAGE)
        else:
            try:
                if check.command not in answers:
                    answers[check.command] = shell.run(check.command)
                report.verdicts[check.name] = check.verdict(answers[check.command])
            except NoBoard as error:
                lost = check.name
                report.verdicts[check.name] = bad(f"the board does not answer any more: {error}")
    report.verdicts["message"] = message(answers.get(system.STATUS), args, address)
    return report


def checks(args: argparse.Namespace) -> list[HardwareCheck]:
    """The checks of a board, in the order of the report."""
    of_image = HardwareCheck("image", system.ABOUT, system.image(args.board), of_image=True)
    return [of_image, *system.CHECKS, *physical.checks(args.written_mb, args.sensor, args.usb)]


def message(status: Answer | None, args: argparse.Namespace, address: Address | None) -> Verdict:
    """A message goes in from here, and a result comes out; needs the gateway's answer to `edgert status`."""
    if address is None:
        return skipped("no broker was named (--broker HOST:PORT)")
    try:
        gateway = documents(status.text if status else "")[0]
        fleet, name = str(gateway["fleet"]), str(gateway["gateway"])
    except (ValueError, LookupError):
        return skipped("the gateway does not answer")
    host, port = address
    return judge(host, port, fleet, name, asked=args.broker is not None)


def reach(args: argparse.Namespace) -> tuple[Shell, str, Address | None]:
    """A shell on the board that the arguments name, the way to it, and its broker if that may be reached. Raises
    `NoBoard`."""
    if args.local:
        return local(sudo=args.sudo), "local", args.broker
    if args.qemu:
        shell, address = start(args.board, args.images or ROOT / "build" / "images" / args.board)
        return shell, "QEMU", address
    if args.serial:
        password = args.password_file.read_text().strip("\n") if args.password_file else ""
        login = Login(args.user, password, args.login)
        return serial(args.serial, args.speed, login, sudo=args.sudo), f"serial line {args.serial}", args.broker
    known = args.known_hosts or KNOWN_HOSTS
    known.parent.mkdir(parents=True, exist_ok=True)
    before = host_key(args.host, args.port, known)
    accept = args.known_hosts is None
    shell = ssh(f"{args.user}@{args.host}", args.port, args.key, known, accept_new=accept, sudo=args.sudo)
    if not before:
        print(f"host key of {args.host}: {host_key(args.host, args.port, known)}, kept in {known}", file=sys.stderr)
    return shell, f"ssh {args.host}", args.broker or (args.host, BROKER_PORT)


def _matching(pattern: str, what: str) -> Callable[[str], str]:
    def checked(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}")
        return text

    return checked


SENSOR: Final = _matching(r"/[\w./*:@+-]+", "a file, as /sys/bus/w1/devices/28-*/temperature")
USB: Final = _matching("[0-9a-f]{4}:[0-9a-f]{4}", "VENDOR:PRODUCT, as 0403:6001")
HOST: Final = _matching(r"[\w.:%][\w.:%-]*", "a host name or an address")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal():
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, got {text!r}")
    return HOST(host), int(port)


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments. Exits with 2 if they are wrong."""
    about = "Tests a real board. Exit status: 0 all is good, 1 something is bad, 3 no board is reached."
    parser = argparse.ArgumentParser("hardware", description=about)
    add = parser.add_argument
    add("board", choices=[*BOARDS, NONE], help=f"its image; {NONE}: it was set up by hand")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--host", type=HOST, help="reach the board by SSH")
    way.add_argument("--serial", type=Path, metavar="DEVICE", help="by its serial console, as /dev/ttyUSB0")
    way.add_argument("--local", action="store_true", help="this machine is the board")
    way.add_argument("--qemu", action="store_true", help="start the image of build/images/BOARD in QEMU")
    add("--images", type=Path, help="folder of the image for --qemu (build/images/BOARD)")
    add("--user", default="root", help="account on the board (default: root)")
    add("--sudo", action="store_true", help="the account is not root, and may use sudo without a password")
    add("--port", type=int, default=22, help="of SSH (default: 22)")
    add("--key", type=Path, help="private key for SSH")
    text = "only a host key in this file is taken; default: the first key of a board is taken, told and kept"
    add("--known-hosts", type=Path, metavar="FILE", help=text)
    add("--speed", type=int, choices=SPEEDS, default=115200, help="of the serial line (default: 115200)")
    add("--login", default="login:", metavar="TEXT", help="end of the serial console's login prompt (default: login:)")
    add("--password-file", type=Path, metavar="FILE", help="password for the serial console")
    text = f"the board's broker, as seen from here (default with --host: its port {BROKER_PORT}, skipped if closed)"
    add("--broker", type=_address, metavar="HOST:PORT", help=text)
    text = "a file on the board that has a number, of the kernel's driver of a sensor; may come several times"
    add("--sensor", type=SENSOR, action="append", default=[], metavar="FILE", help=text)
    text = "a USB device that has to be there; may come several times"
    add("--usb", type=USB, action="append", default=[], metavar="VENDOR:PRODUCT", help=text)
    text = f"most that may be written to the card in a day (default: {physical.WRITTEN_MB:.0f})"
    add("--written-mb", type=float, default=physical.WRITTEN_MB, metavar="MB", help=text)
    add("--json", action="store_true", help="the report as one JSON object")
    args = parser.parse_args(argv)
    if args.qemu and args.board == NONE:
        parser.error("--qemu needs the name of an image")
    if args.password_file and not args.password_file.is_file():
        parser.error(f"--password-file: expected a file, got {args.password_file}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Tests one board; returns the exit status."""
    args = parsed(argv)
    try:
        shell, way, address = reach(args)
        with closing(shell):
            report = examine(shell, args, way, address)
    except NoBoard as error:
        print(not_reached(str(error), as_json=args.json))
        return NOT_REACHED
    print(json.dumps(report.plain(), indent=1) if args.json else "\n".join(report.lines()))
    return report.status


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a board in QEMU ends, too
    sys.exit(main())
