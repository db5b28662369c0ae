"""A board in QEMU: the disks of its image, a USB stick or card with a provisioning file, ports of loopback."""

from __future__ import annotations

import base64
import re
import shutil
import socket
import struct
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

MEMORY_MIB: Final = 1024
QUIET: Final = "quiet systemd.show_status=error"
PATIENT: Final = "systemd.default_timeout_start_sec=600 systemd.default_device_timeout_sec=600"
"""An emulated start on a busy machine is ten times slower than a real one."""
SECTOR: Final = 512
PROBE_UNIT: Final = """[Unit]
After=edgert-gateway.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo "machine-id: $(cat /etc/machine-id)" >/dev/console'
ExecStart=/bin/sh -c 'sleep 20; grep -E "Mem(Total|Available)" /proc/meminfo >/dev/console'
ExecStart=/bin/sh -c 'echo "data: $(stat -f -c "%%b %%S" /var)" >/dev/console'
"""
"""Tells machine id, memory and room on the console. It comes with the kernel's arguments: nobody can log in."""


class BootError(Exception):
    """The board did not do what it should; the message says what was awaited."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Machine:
    """One board in QEMU; its disks are copies, so the image stays as it is."""

    def __init__(self, board: str, images: Path, folder: Path, provisioning: str) -> None:
        """`provisioning` is the text of edgert.toml."""
        spec = tomllib.loads((Path(__file__).with_name("boards") / f"{board}.toml").read_text())
        if "qemu" not in spec:
            raise BootError(f"board {board} cannot be emulated here")
        self._qemu: dict[str, Any] = spec["qemu"]
        self._board, self._images, self._folder = board, images, folder
        self.broker, self.page = free_port(), free_port()
        self.log = folder / "serial.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._start: tuple[str, ...] = ()
        self._fat = ""
        given = folder / "edgert.toml"
        given.write_text(provisioning)
        self._disks = self._card() if "card" in spec else self._slots()
        subprocess.run(["mcopy", "-i", self._fat, given, "::"], check=True)

    def _copy(self, name: str) -> Path:
        if not (self._images / name).exists():
            raise BootError(f"expected {self._images / name}: build the image first (make image BOARD={self._board})")
        return Path(shutil.copy(self._images / name, self._folder / name))

    def _slots(self) -> list[str]:
        """Root, data and a USB stick; the kernel comes from beside them."""
        root, data = self._copy("root.ext4"), self._copy("data.ext4")
        stick = self._folder / "stick.vfat"
        self._fat = str(stick)
        subprocess.run(["mkfs.vfat", "-C", "-n", "EDGERT", stick, "8192"], check=True, stdout=subprocess.DEVNULL)
        self._start = (
            "-kernel", str(self._images / "vmlinuz"), "-initrd", str(self._images / "initrd.img"),
            "-append", f"root=LABEL=edgert-root ro console={self._qemu['console']} panic=5 {self._arguments()}",
        )  # fmt: skip
        return [
            "-drive", f"file={root},format=raw,if=virtio,readonly=on",
            "-drive", f"file={data},format=raw,if=virtio",
            "-drive", f"file={stick},format=raw,if=virtio",
            "-netdev", f"user,id=n,{self._forwards}", "-device", "virtio-net-pci,netdev=n", "-device", "virtio-rng-pci",
            "-m", str(MEMORY_MIB),
        ]  # fmt: skip

    def _card(self) -> list[str]:
        """The card; kernel, initramfs, device tree and the kernel's arguments are those on its first partition."""
        card = self._copy("card.img")
        with card.open("rb+") as file:
            first = struct.unpack("<I", file.read(SECTOR)[454:458])[0]
            file.truncate(1 << (card.stat().st_size - 1).bit_length())  # QEMU takes only sizes that are powers of two
        self._fat = f"{card}@@{first * SECTOR}"
        for name in ("vmlinuz", "initrd.img", "cmdline.txt", self._qemu["device_tree"]):
            subprocess.run(["mcopy", "-i", self._fat, f"::{name}", self._folder], check=True)
        arguments = (self._folder / "cmdline.txt").read_text().strip()
        self._start = (
            "-kernel", str(self._folder / "vmlinuz"), "-initrd", str(self._folder / "initrd.img"),
            "-dtb", str(self._folder / self._qemu["device_tree"]),
            "-append", f"{arguments} {self._qemu['append']} {self._arguments()}",
        )  # fmt: skip
        return [
            "-drive", f"file={card},format=raw,if=sd",
            "-netdev", f"user,id=n,{self._forwards}", "-device", "usb-net,netdev=n",
        ]  # fmt: skip

    def _arguments(self) -> str:
        unit = base64.b64encode(PROBE_UNIT.encode()).decode()
        probe = f"systemd.set_credential_binary=systemd.extra-unit.probe.service:{unit} systemd.wants=probe.service"
        return f"{QUIET} {PATIENT} {probe}"

    @property
    def _forwards(self) -> str:
        return f"hostfwd=tcp:127.0.0.1:{self.broker}-:1883,hostfwd=tcp:127.0.0.1:{self.page}-:8080"

    def start(self) -> None:
        command = [
            self._qemu["command"], *self._qemu["arguments"], "-display", "none", "-monitor", "none", "-no-reboot",
            *self._start, *self._disks, *self._qemu.get("serial", ["-serial", "stdio"]),
        ]  # fmt: skip
        with self.log.open("ab") as log, (self._folder / "qemu.log").open("ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=errors)

    def cut(self) -> None:
        """As a power cut."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def left(self) -> list[str]:
        """The names on the FAT partition that the provisioning file was on."""
        listed = subprocess.run(["mdir", "-b", "-i", self._fat], capture_output=True, text=True, check=False)
        return [name.removeprefix("::/") for name in listed.stdout.split()]

    def used_mib(self) -> float | None:
        """Memory in use, without what the kernel could give back; None until the board has told."""
        said = re.search(r"MemTotal: +(\d+) kB\s+MemAvailable: +(\d+) kB", self._said())
        return None if said is None else (int(said[1]) - int(said[2])) / 1024

    def data_mib(self) -> int | None:
        """Size of the file system for data; None until the board has told."""
        said = re.search(r"data: (\d+) (\d+)", self._said())
        return None if said is None else int(said[1]) * int(said[2]) >> 20

    def machine_ids(self) -> list[str]:
        """The machine's id, of each start that has told it."""
        return re.findall(r"machine-id: ([0-9a-f]{32})", self._said())

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def tail(self) -> str:
        """What board and QEMU said last."""
        qemu = self._folder / "qemu.log"
        return self._said()[-3_000:] + (qemu.read_text(errors="replace")[-500:] if qemu.exists() else "")

    def _said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""
