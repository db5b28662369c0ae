"""A board in QEMU: a copy of its card with a provisioning file on it, ports of loopback, a shell for the test."""

from __future__ import annotations

import base64
import http.client
import json
import re
import shlex
import shutil
import socket
import subprocess
import time
import tomllib
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from images.layout import FAT_OFFSET

MEMORY_MIB: Final = 1024
QUIET: Final = "quiet systemd.show_status=error"
PATIENT: Final = "systemd.default_timeout_start_sec=600 systemd.default_device_timeout_sec=600"
"""An emulated start on a busy machine is ten times slower than a real one."""
PORT: Final = "edgert.probe"
SHELL_UNIT: Final = f"""[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'exec 3<>/dev/virtio-ports/{PORT}; exec /bin/sh <&3 >&3 2>&1'
Restart=always
RestartSec=1
"""
"""A root shell for the test, which QEMU brings: boards of the test have no key for SSH."""
USB_SHELL: Final = SHELL_UNIT.replace(
    f"virtio-ports/{PORT}; exec /bin/sh <&3", "ttyUSB0; stty raw -echo <&3; cat <&3 | /bin/sh"
)
"""The shell of a machine that has no virtio. Its line is a terminal, on which a shell would prompt."""
WANTS_RULE: Final = 'SUBSYSTEM=="virtio-ports", TAG+="systemd", ENV{SYSTEMD_WANTS}+="x.service"\n'
CREDENTIALS: Final = {"systemd.extra-unit.x.service": SHELL_UNIT, "udev.rules.x": WANTS_RULE}
"""QEMU takes no longer names."""
DISKS: Final = {
    "sata": ["-device", "ich9-ahci,id=sata", "-device", "ide-hd,drive=card,bus=sata.0,bootindex=0"],
    "nvme": ["-device", "nvme,drive=card,serial=edgert,bootindex=0"],
    "usb": ["-device", "qemu-xhci", "-device", "usb-storage,drive=card,bootindex=0"],
    "virtio": ["-device", "virtio-blk-pci,drive=card,bootindex=0"],
}
"""Buses for the card."""
FIRMWARES: Final = ("uefi", "bios")
UEFI: Final = Path("/usr/share/OVMF")
OWN_CLOCK: Final = ("-icount", "shift=1,sleep=on")
"""The board's clock goes by its instructions, 2 ns each: on a busy machine its services keep their time limits."""
CACHE: Final = "cache=unsafe"
"""This machine keeps what the board has written, also when QEMU is killed: it need not wait for its own disk."""
ANSWER_S: Final = 900.0
STATUS_S: Final = 5.0
LOOK_S: Final = 5.0
"""Between two looks at whether the board was started again while it owes an answer."""
READY_S: Final = 60.0
"""Until a shell that was just started says something: many seconds on a busy machine."""
FIRST_S: Final = 1_700_000_000
MINUTES_S: Final = 600
"""Between the minutes in which sensors measure."""


class BootError(Exception):
    """The board did not do what it should; the message says what was awaited."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def plugged(card: Path, disk: str, firmware: str = "bios") -> list[str]:
    """The arguments with which a card hangs on one of `DISKS`, below one of `FIRMWARES`."""
    arguments = ["-drive", f"file={card},format=raw,if=none,id=card,{CACHE}", *DISKS[disk]]
    if firmware == "uefi":
        if not UEFI.exists():
            raise BootError(f"expected {UEFI}: apt-get install ovmf")
        variables = card.with_name("uefi.fd")
        shutil.copy(UEFI / "OVMF_VARS_4M.fd", variables)  # a PC that has not seen this disk yet
        program = UEFI / "OVMF_CODE_4M.fd"
        arguments += ["-drive", f"if=pflash,format=raw,readonly=on,file={program}"]
        arguments += ["-drive", f"if=pflash,format=raw,file={variables}"]
    return arguments


class Machine:
    """One board in QEMU; its card is a copy, so the image stays as it is. A card that is in `folder` is used again."""

    host = "127.0.0.1"
    """Where its ports are reached."""
    has_slots = True
    """And a shell for the test; a container has neither."""

    def __init__(self, board: str, images: Path, folder: Path, provisioning: str, *, own_clock: bool = False) -> None:
        """`provisioning` is the text of edgert.toml."""
        spec = tomllib.loads((Path(__file__).parents[1] / "boards" / f"{board}.toml").read_text())
        if "qemu" not in spec:
            raise BootError(f"board {board} cannot be emulated here")
        if not (images / "card.img").exists():
            raise BootError(f"expected {images / 'card.img'}: build the image first (make image BOARD={board})")
        self._qemu: dict[str, Any] = spec["qemu"]
        self._folder = folder
        self.broker, self.page = free_port(), free_port()
        self.log = folder / "serial.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.look_s = LOOK_S
        self.card = folder / "card.img"
        self._fat = f"{self.card}@@{FAT_OFFSET}"
        if not self.card.exists():
            self._copy(images / "card.img", provisioning)
        self._clock = OWN_CLOCK if own_clock else ()
        self.arguments = self._raspberry() if "device_tree" in self._qemu else self._virtio()

    def _copy(self, image: Path, provisioning: str) -> None:
        subprocess.run(["cp", "--sparse=always", image, self.card], check=True)
        self.provision(provisioning)

    def provision(self, text: str) -> None:
        """Lays an edgert.toml on the card of a board that is off."""
        self.lay("edgert.toml", text)

    def lay(self, name: str, text: str) -> None:
        """Writes a file of the FAT partition of a board that is off."""
        given = self._folder / name
        given.write_text(text)
        subprocess.run(["mcopy", "-o", "-i", self._fat, given, "::"], check=True)

    def _virtio(self) -> list[str]:
        """The boot loader of the card (or QEMU's) does what it does on a board."""
        given = []
        for name, text in CREDENTIALS.items():
            (self._folder / name).write_text(text)
            given.append(f"name=opt/io.systemd.credentials/{name},file={self._folder / name}")
        return [
            *plugged(self.card, "virtio"),
            "-netdev", f"user,id=n,{self._forwards}", "-device", "virtio-net-pci,netdev=n", "-device", "virtio-rng-pci",
            "-m", str(MEMORY_MIB), "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=probe,path={self._shell},server=on,wait=off",
            "-device", f"virtserialport,chardev=probe,name={PORT}",
            *(word for one in given for word in ("-fw_cfg", one)),
        ]  # fmt: skip

    def _raspberry(self) -> list[str]:
        """QEMU in the place of the firmware: it starts the U-Boot of the card's first partition, and hands over a
        device tree of that partition with the kernel's arguments for the test."""
        with self.card.open("rb+") as file:
            file.truncate(1 << (self.card.stat().st_size - 1).bit_length())  # QEMU takes only powers of two
        for name in ("u-boot.bin", self._qemu["device_tree"]):
            subprocess.run(["mcopy", "-o", "-i", self._fat, f"::{name}", self._folder], check=True)
        unit = base64.b64encode(USB_SHELL.encode()).decode()
        shell = f"systemd.set_credential_binary=systemd.extra-unit.x.service:{unit} systemd.wants=x.service"
        return [
            "-kernel", str(self._folder / "u-boot.bin"), "-dtb", str(self._folder / self._qemu["device_tree"]),
            "-append", f"{self._qemu['append']} {shell} {QUIET} {PATIENT}",
            "-drive", f"file={self.card},format=raw,if=sd,{CACHE}",
            "-netdev", f"user,id=n,{self._forwards}", "-device", "usb-net,netdev=n",
            "-chardev", f"socket,id=probe,path={self._shell},server=on,wait=off",
            "-device", "usb-serial,chardev=probe,always-plugged=on",
        ]  # fmt: skip

    @property
    def _shell(self) -> Path:
        return self._folder / "shell"

    @property
    def _forwards(self) -> str:
        return f"hostfwd=tcp:127.0.0.1:{self.broker}-:1883,hostfwd=tcp:127.0.0.1:{self.page}-:8080"

    def start(self) -> None:
        command = [
            self._qemu["command"], *self._qemu["arguments"], *self._clock, "-nodefaults", "-display", "none",
            *self.arguments, *self._qemu.get("serial", ["-serial", "stdio"]),
        ]  # fmt: skip
        with self.log.open("ab") as log, (self._folder / "qemu.log").open("ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=errors)

    def cut(self) -> None:
        """Ends the machine as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ask(self, command: str, within_s: float = ANSWER_S) -> tuple[int, str]:
        """Exit status and output of a command on the board. Raises `BootError` if it does not answer in time."""
        ends = time.monotonic() + within_s
        while time.monotonic() < ends:
            if (found := self._ask_once(command, ends)) is not None:
                return found
            time.sleep(1.0)
        raise BootError(f"no answer within {within_s:.0f} s to: {command}\n{self.tail()}")

    def _ask_once(self, command: str, ends: float) -> tuple[int, str] | None:
        """None if no shell is there yet, or the board was started again under it."""
        mark = f"done-{time.monotonic_ns()}"
        try:
            with socket.socket(socket.AF_UNIX) as shell:
                starts = len(self.starts())
                self._greet(shell, ends)
                shell.sendall(f"sh -c {shlex.quote(command)} 2>&1; echo {mark} $?\n".encode())
                said = self._read(shell, rf"{mark} \d+\n", ends, starts)
        except OSError:
            return None
        output, _, status = said.rpartition(mark)
        return int(status), output

    def tell(self, command: str) -> None:
        """Starts a command whose end is not waited for: it may be the end of the shell. Raises `BootError`."""
        mark, ends = f"begun-{time.monotonic_ns()}", time.monotonic() + ANSWER_S
        while time.monotonic() < ends:
            try:
                with socket.socket(socket.AF_UNIX) as shell:
                    starts = len(self.starts())
                    self._greet(shell, ends)
                    shell.sendall(f"echo {mark}; {command}\n".encode())
                    self._read(shell, f"{mark}\n", ends, starts)
                    return
            except OSError:
                time.sleep(1.0)
        raise BootError(f"no shell within {ANSWER_S:.0f} s for: {command}\n{self.tail()}")

    def _greet(self, shell: socket.socket, ends: float) -> None:
        """Connects, and waits for a shell that answers. Raises `OSError`."""
        mark = f"ready-{time.monotonic_ns()}"
        shell.settimeout(self.look_s)
        shell.connect(str(self._shell))
        shell.sendall(f"echo {mark}\n".encode())
        self._read(shell, f"{mark}\n", min(ends, time.monotonic() + READY_S), len(self.starts()))

    def _read(self, shell: socket.socket, pattern: str, ends: float, starts: int) -> str:
        """Until `pattern` came. Raises `OSError`, also if the board was started again since it had been `starts` times:
        the connection to QEMU outlives that, and the answer never comes."""
        said = b""
        shell.settimeout(self.look_s)
        while time.monotonic() < ends:
            try:
                block = shell.recv(65536)
            except TimeoutError:
                if len(self.starts()) != starts or not self.running:
                    raise ConnectionError("the board was started again") from None
                continue
            if not block:
                raise ConnectionError("the shell has ended")
            said += block
            if re.search(pattern, said.decode(errors="replace")):
                return said.decode(errors="replace")
        raise TimeoutError(pattern)

    def status(self) -> dict[str, Any]:
        """The gateway's, of its page; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.page}/api/status", timeout=STATUS_S) as answer:
                found: dict[str, Any] = json.load(answer)
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        return found

    def wait(self, holds: Callable[[dict[str, Any]], object], what: str) -> None:
        """Waits until something is true of the gateway's status."""
        ends = time.monotonic() + ANSWER_S
        while not ((status := self.status()) and holds(status)):
            if time.monotonic() > ends:
                raise BootError(f"waited {ANSWER_S:.0f} s for {what}; status: {status}\n{self.tail()}")
            time.sleep(0.5)

    def left(self) -> list[str]:
        """The names on the FAT partition that the provisioning file was on."""
        listed = subprocess.run(["mdir", "-b", "-i", self._fat], capture_output=True, text=True, check=False)
        return [name.removeprefix("::/") for name in listed.stdout.split()]

    def minute(self) -> int:
        """The start (event time, s) of a minute in which no sensor has measured yet."""
        noted = self._folder / "minute"
        minute = int(noted.read_text()) + MINUTES_S if noted.exists() else FIRST_S
        noted.write_text(str(minute))
        return minute

    def minutes(self) -> list[int]:
        """All of them, so far."""
        noted = self._folder / "minute"
        return list(range(FIRST_S, int(noted.read_text()) + 1, MINUTES_S)) if noted.exists() else []

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def starts(self) -> list[str]:
        """The slots that were started, in order, as the boot loader said."""
        return re.findall(r"edgert: starts slot ([AB])", self.console())

    def tail(self) -> str:
        """The last output of board and QEMU."""
        qemu = self._folder / "qemu.log"
        return self.console()[-3_000:] + (qemu.read_text(errors="replace")[-500:] if qemu.exists() else "")

    def console(self) -> str:
        """All that it said on its serial console."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""
