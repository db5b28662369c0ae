"""Boots an image in QEMU and shows that it works: `python3 -m images.boot BOARD`.

A sensor outside publishes to the board's broker, a flow that was deployed over MQTT counts, and its results come out.
Software emulation, so a boot takes some 20 to 60 s. Traffic goes to ports of loopback that QEMU forwards.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
import zstandard
from paho.mqtt.enums import CallbackAPIVersion

from images.check import memory
from images.machine import BootError, Machine

ROOT: Final = Path(__file__).resolve().parents[1]
BOOT_S: Final = 900.0
"""Emulated on a busy machine; on an idle one a boot takes less than a minute."""
ANSWER_S: Final = 300.0
MESSAGES: Final = 60
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
    with tempfile.TemporaryDirectory(prefix="edgert-boot-", dir=memory()) as folder:
        machine = Machine(board, images, Path(folder), PROVISIONING)
        try:
            machine.start()
            _first_start(machine)
            time.sleep(3.0)
            machine.cut()
            machine.start()
            _after_power_cut(machine)
        finally:
            machine.cut()
    print(f"boot: {sizes(images)}", flush=True)
    return 0


def _first_start(machine: Machine) -> None:
    outside = Outside(machine)
    load = os.getloadavg()[0]
    print(f"boot: CONNACK {outside.connect():.0f} s after power on (emulated; load {load:.1f})", flush=True)
    outside.wait(lambda: bool(outside.online()), "the gateway")
    gateway = outside.online()
    if gateway != "probe-board" or "edgert.toml" in machine.left():
        raise BootError(f"expected probe-board and a wiped file, got {gateway} and {machine.left()}")
    print(f"boot: gateway {gateway} is online, and its provisioning file is wiped", flush=True)
    outside.wait(lambda: machine.data_mib() is not None, "the board's memory and room")
    said = f"{machine.used_mib():.0f} MiB of memory are in use, the data partition has {machine.data_mib()} MiB"
    print(f"boot: idle, {said}", flush=True)
    outside.deploy(gateway)
    outside.measure()
    print("boot: results of the flow came out", flush=True)
    outside.client.loop_stop()


def _after_power_cut(machine: Machine) -> None:
    again = Outside(machine)
    print(f"boot: after a power cut CONNACK after {again.connect():.0f} s", flush=True)
    again.wait(lambda: bool(again.online()), "the gateway after the power cut")
    again.wait(lambda: any("/@results/" in t for t, _ in again.seen), "results that were not acknowledged")
    print("boot: results that nobody had acknowledged are sent again", flush=True)
    again.wait(lambda: len(machine.machine_ids()) > 1, "the machine's id")
    if len(set(machine.machine_ids())) > 1:
        raise BootError(f"expected one machine id, got {machine.machine_ids()}")
    print("boot: the machine's id is the same", flush=True)
    again.client.loop_stop()


def sizes(images: Path) -> str:
    """Size of an image (MB), and size compressed as one would offer it for download."""
    names = ["card.img"] if (images / "card.img").exists() else ["root.ext4", "vmlinuz", "initrd.img"]
    whole = sum((images / name).stat().st_size for name in names)
    packed = sum(_packed(images / name) for name in names)
    return f"{' + '.join(names)}: {whole / 1e6:.0f} MB, {packed / 1e6:.0f} MB with zstd"


def _packed(path: Path) -> int:
    """Bytes of a file after zstd, level 9."""
    packer, size = zstandard.ZstdCompressor(level=9, threads=-1).compressobj(), 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            size += len(packer.compress(block))
    return size + len(packer.flush())


def main(argv: Sequence[str] | None = None) -> int:
    """Tries one image; returns the exit status."""
    parser = argparse.ArgumentParser("images.boot", description="Boots an image in QEMU and shows that it works.")
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
