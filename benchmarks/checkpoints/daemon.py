"""The gateway daemon as a process, fed through Mosquitto, asked for checkpoints, killed, and started again."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
import psutil
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from benchmarks.checkpoints.flow import LONG_S, Messages, document
from benchmarks.ingest.flows import probe
from benchmarks.ingest.gateway import READY
from benchmarks.processes import Child, child, wait_for
from edgert.core.toml import to_toml
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import V311

GATEWAY: Final = "bench"
FAR_S: Final = 3_600.0
"""Interval: none is made but those that are asked for, or that a bound on input asks for."""
ANSWER_S: Final = 30.0
PROBE_S: Final = 0.01
AT_ONCE: Final = 1_000
"""Packets are sent in writes of so many."""


class Publisher:
    """The sensors: sends at QoS 1 as fast as the broker takes it."""

    def __init__(self, port: int) -> None:
        self.messages = Messages()
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(encode.connect(V311, "load", clean=True, keep_alive_s=0))
        if self._socket.recv(4) != b"\x20\x02\x00\x00":
            raise RuntimeError("expected the broker to take the connection")

    def send(self, keys: Sequence[int]) -> None:
        """A message for each key; returns when the broker has them all."""
        for packets in self.messages.reads(keys, qos=1, size=AT_ONCE):
            self._socket.sendall(packets)
        owed = 4 * len(keys)
        while owed:
            got = len(self._socket.recv(min(owed, 1 << 16)))
            if not got:
                raise RuntimeError("expected the broker to acknowledge, it has closed the connection")
            owed -= got

    def close(self) -> None:
        self._socket.close()


class Desk:
    """A client that asks for checkpoints, and sees messages come through the gateway."""

    def __init__(self, port: int) -> None:
        self._answers: queue.Queue[bytes] = queue.Queue()
        self.through: list[tuple[float, int]] = []
        """(monotonic time, number) of each probe that came out of the gateway."""
        self.sent: list[float] = []
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, "desk", protocol=mqtt.MQTTv5)
        self._client.on_message = self._message
        self._client.connect("127.0.0.1", port)
        self._client.subscribe([("bench/answers", 1), ("probe/out", 0)])
        self._client.loop_start()

    def _message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        if message.topic == "probe/out":
            self.through.append((time.monotonic(), int(json.loads(message.payload)["n"])))
        else:
            self._answers.put(bytes(message.payload))

    def probe(self) -> None:
        """Sends a message that the gateway publishes again at once."""
        self.sent.append(time.monotonic())
        self._client.publish("probe/in", b'{"n":%d}' % (len(self.sent) - 1), 0)

    def ask(self) -> None:
        """For a checkpoint of all flows."""
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ResponseTopic = "bench/answers"
        self._client.publish(f"edgert/v1/default/{GATEWAY}/cmd/checkpoint", b"", 1, properties=properties)

    def answer(self) -> dict[str, Any]:
        """What the gateway says of it."""
        told: dict[str, Any] = json.loads(self._answers.get(timeout=ANSWER_S))
        if not told.get("committed"):
            raise RuntimeError(f"expected a checkpoint, got {told}")
        return told

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def prepare(folder: Path, port: int, web: int) -> Path:
    """Writes the flows' documents and the settings; returns the path of these."""
    folder.mkdir()
    files = []
    for plain in (document(LONG_S, FAR_S), probe() | {"checkpoint": {"interval_s": FAR_S}}):
        files.append(folder / f"{plain['name']}.toml")
        files[-1].write_text(to_toml(plain), encoding="utf-8")
    settings = {
        "gateway": {"id": GATEWAY, "data_dir": str(folder / "data")},
        "sensors": {"port": port},
        "central": {"port": port},
        "web": {"port": web},
        "flows": {"files": [str(file) for file in files]},
    }
    config = folder / "gateway.toml"
    config.write_text(to_toml(settings), encoding="utf-8")
    return config


@contextmanager
def gateway(config: Path) -> Iterator[Child]:
    """The daemon, from its start."""
    with child([sys.executable, "-m", "gateway", "--config", config], config.parent / "gateway.log") as process:
        yield process


def ready_s(process: Child) -> float:
    """Waits for its word that it is ready; from the start of the process, s."""
    wait_for(lambda: READY in process.said() or not process.alive, "the gateway to be ready", ANSWER_S)
    if not process.alive:
        raise RuntimeError(f"expected a gateway, got: {process.said()[-2000:]}")
    return time.monotonic() - process.started


def through_s(process: Child, desk: Desk) -> float:
    """Sends messages until one has come through the gateway; from the start of the process to that, s."""
    sent = len(desk.sent)  # those before it may still be under way from the gateway that was killed
    deadline = time.monotonic() + ANSWER_S
    while not (through := [at for at, number in desk.through if number >= sent]):
        if time.monotonic() > deadline or not process.alive:
            raise RuntimeError(f"expected a message through the gateway, got: {process.said()[-2000:]}")
        desk.probe()
        time.sleep(PROBE_S)
    return through[0] - process.started


def kill(process: Child) -> None:
    """As a power cut would."""
    os.kill(process.pid, signal.SIGKILL)
    process.end()


def written(process: Child) -> int:
    """Bytes that the kernel says it had written to disks."""
    return int(psutil.Process(process.pid).io_counters().write_bytes)
