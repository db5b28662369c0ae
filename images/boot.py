"""Boots an image in QEMU and shows that it works: `python3 images/boot.py BOARD`.

A sensor outside publishes to the board's broker, a flow that was deployed over MQTT counts, and its results come out.
Software emulation, so a boot takes some 20 to 60 s. Traffic goes to ports of loopback that QEMU forwards.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

ROOT: Final = Path(__file__).resolve().parents[1]
BOOT_S: Final = 900.0
"""Emulated on a busy machine; on an idle one a boot takes less than a minute."""
ANSWER_S: Final = 300.0
MESSAGES: Final = 60
MEMORY_MIB: Final = 1024
QUIET: Final = "quiet systemd.show_status=false"
FLOW: Final = """
name = "counts"
[checkpoint]
interval_s = 1.0
[operators.readings]
type = "mqtt_source"
topic = "sensors/{source}"
[operators.by_source]
type = "key_by"
input = "readings"
keys = ["source"]
[operators.seconds]
type = "tumbling_window"
input = "by_source"
size_s = 10.0
aggregates = { n = "count()" }
[operators.out]
type = "publish"
input = "seconds"
topic = "results/{source}"
[operators.central]
type = "ship"
input = "seconds"
"""


PROVISIONING: Final = """
[gateway]
id = "probe-board"
[broker]
listen = "0.0.0.0"
control = true
[web]
host = "0.0.0.0"
"""
"""The image opens nothing to the network: the board is told to."""


class BootError(Exception):
    """The board did not do what it should; the message says what was awaited."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Machine:
    """One board in QEMU; its disks are copies, so the image stays as it is."""

    def __init__(self, board: str, images: Path, folder: Path) -> None:
        spec = tomllib.loads((Path(__file__).with_name("boards") / f"{board}.toml").read_text())
        if "qemu" not in spec:
            raise BootError(f"board {board} cannot be emulated here")
        self._qemu: dict[str, Any] = spec["qemu"]
        self._images, self._folder = images, folder
        self.broker, self.page = free_port(), free_port()
        self.log = folder / "serial.log"
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("root.ext4", "data.ext4"):
            if not (images / name).exists():
                raise BootError(f"expected {images / name}: build the image first (make image BOARD={board})")
            shutil.copy(images / name, folder / name)
        self._stick = folder / "stick.vfat"
        given = folder / "edgert.toml"
        given.write_text(PROVISIONING)
        for command in (
            ("mkfs.vfat", "-C", "-n", "EDGERT", self._stick, "8192"),
            ("mcopy", "-i", self._stick, given, "::"),
        ):
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        forwards = f"hostfwd=tcp:127.0.0.1:{self.broker}-:1883,hostfwd=tcp:127.0.0.1:{self.page}-:8080"
        command = [
            self._qemu["command"], *self._qemu["arguments"], "-m", str(MEMORY_MIB), "-nographic", "-no-reboot",
            "-kernel", str(self._images / "vmlinuz"), "-initrd", str(self._images / "initrd.img"),
            "-append", f"root=LABEL=edgert-root ro console={self._qemu['console']} panic=5 {QUIET}",
            "-drive", f"file={self._folder / 'root.ext4'},format=raw,if=virtio,readonly=on",
            "-drive", f"file={self._folder / 'data.ext4'},format=raw,if=virtio",
            "-drive", f"file={self._stick},format=raw,if=virtio",
            "-netdev", f"user,id=n,{forwards}", "-device", "virtio-net-pci,netdev=n", "-device", "virtio-rng-pci",
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def cut(self) -> None:
        """As a power cut."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def left_on_stick(self) -> list[str]:
        """The files on the stick with the provisioning file."""
        listed = subprocess.run(["mdir", "-b", "-i", str(self._stick)], capture_output=True, text=True, check=False)
        return listed.stdout.split()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3_000:] if self.log.exists() else ""


class Outside:
    """A client outside of the board: sensors, and whoever looks at results."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.seen: list[tuple[str, bytes]] = []
        self.connected = False
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self.client.on_connect = self._on_connect
        self.client.on_message = self._on_message

    def _on_connect(self, client: paho.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self.connected = not reason.is_failure
        client.subscribe([("results/#", 1), ("edgert/v1/#", 1)])

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self.seen.append((message.topic, bytes(message.payload)))

    def connect(self) -> float:
        """Until the broker answers; returns the seconds that took."""
        began = time.monotonic()
        while not self.connected:
            if not self._machine.running or time.monotonic() - began > BOOT_S:
                raise BootError(f"no CONNACK within {BOOT_S:.0f} s of the start:\n{self._machine.tail()}")
            try:
                self.client.connect("127.0.0.1", self._machine.broker, keepalive=30)
                self.client.loop_start()
                time.sleep(1.0)
            except OSError:
                time.sleep(0.5)
        return time.monotonic() - began

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + ANSWER_S
        while not holds():
            if time.monotonic() > ends:
                seen = sorted({topic for topic, _ in self.seen})
                raise BootError(f"waited {ANSWER_S:.0f} s for {what}; seen: {seen}\n{self._machine.tail()}")
            time.sleep(0.2)

    def online(self) -> str:
        """The name of the gateway, when it is there."""
        for topic, payload in self.seen:
            if topic.endswith("/status") and json.loads(payload or b"{}").get("state") == "online":
                return topic.split("/")[3]
        return ""

    def deploy(self, gateway: str) -> None:
        base = f"edgert/v1/default/{gateway}/flows/counts"
        self.client.publish(base, FLOW.encode(), qos=1, retain=True)
        self.wait(lambda: any(t == f"{base}/state" and json.loads(p)["accepted"] for t, p in self.seen), "the flow")

    def measure(self) -> None:
        """Sends messages of a minute; results of all windows but the open one must come."""
        start = 1_700_000_000
        for number in range(MESSAGES):
            payload = json.dumps({"time": start + number, "v": number}).encode()
            self.client.publish("sensors/probe", payload, qos=1)

        def counted() -> int:
            return sum(json.loads(p)["n"] for t, p in self.seen if t == "results/probe")

        self.wait(lambda: counted() >= MESSAGES - 10, "the windows' results")
        self.wait(lambda: any("/@results/" in t for t, _ in self.seen), "a batch for the central side")


def try_board(board: str, images: Path) -> int:
    """Boots, measures, cuts the power, boots again. Raises `BootError`."""
    with tempfile.TemporaryDirectory(prefix="edgert-boot-") as folder:
        machine = Machine(board, images, Path(folder))
        try:
            machine.start()
            outside = Outside(machine)
            print(f"boot: broker answers after {outside.connect():.0f} s", flush=True)
            outside.wait(lambda: bool(outside.online()), "the gateway")
            gateway = outside.online()
            if gateway != "probe-board" or machine.left_on_stick():
                raise BootError(f"expected probe-board and a wiped file, got {gateway} and {machine.left_on_stick()}")
            print(f"boot: gateway {gateway} is online, and its provisioning file is wiped", flush=True)
            outside.deploy(gateway)
            outside.measure()
            print("boot: results of the flow came out", flush=True)
            outside.client.loop_stop()
            time.sleep(3.0)
            machine.cut()
            machine.start()
            again = Outside(machine)
            print(f"boot: after a power cut the broker answers after {again.connect():.0f} s", flush=True)
            again.wait(lambda: bool(again.online()), "the gateway after the power cut")
            again.wait(lambda: any("/@results/" in t for t, _ in again.seen), "results that were not acknowledged")
            print("boot: results that nobody had acknowledged are sent again", flush=True)
            again.client.loop_stop()
        finally:
            machine.cut()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Tries one image; returns the exit status."""
    parser = argparse.ArgumentParser("images/boot.py", description="Boots an image in QEMU and shows that it works.")
    parser.add_argument("board")
    parser.add_argument("--images", type=Path, help="folder of the image (build/images/BOARD)")
    args = parser.parse_args(argv)
    images = args.images or ROOT / "build" / "images" / args.board
    try:
        return try_board(args.board, images.absolute())
    except BootError as error:
        print(f"boot: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
