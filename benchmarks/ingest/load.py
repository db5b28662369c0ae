"""The sensors: publishes at a fixed rate, whatever the broker does (open loop). A process of its own.

Several times a millisecond what is due by the schedule is written, from packets that were made before; only the
time in each payload is set. What a late turn missed is sent with the next, so nobody waits for anybody, and the
schedule is kept even if the broker is slow. PUBACKs are read and counted.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time

from benchmarks.ingest.trace import messages
from edgert.mqtt.packets import encode

ROUNDS = 20
"""So often the trace stands in the buffer: at QoS 1 each place has its packet id, used again after 20,000 messages."""
TICK_S = 0.0002
DRAIN_S = 5.0


class Packets:
    """All packets one after the other."""

    def __init__(self, qos: int) -> None:
        trace, _ = messages()
        self.raw = bytearray()
        self.starts = [0]
        self.stamps: list[int] = []
        for packet_id, message in enumerate(trace * (ROUNDS if qos else 1), 1):
            packet = encode.publish(4, message.topic, message.payload, qos=qos, packet_id=packet_id if qos else 0)
            self.stamps.append(len(self.raw) + len(packet) - len(message.payload) + message.stamp)
            self.raw += packet
            self.starts.append(len(self.raw))
        self._view = memoryview(self.raw)

    def __len__(self) -> int:
        return len(self.stamps)

    def take(self, first: int, last: int, wall: float) -> memoryview:
        """The packets from `first` to before `last` (places, `last` at most the length), with this time in them."""
        raw, digits = self.raw, b"%013d" % int(wall * 1000)
        for at in self.stamps[first:last]:
            raw[at : at + 13] = digits
        return self._view[self.starts[first] : self.starts[last]]


class Load:
    """One publisher."""

    def __init__(self, port: int, qos: int) -> None:
        self.packets = Packets(qos)
        self.sent = self.acknowledged = 0
        self.latest = 0.0
        """The longest that a message was sent after its time, seconds."""
        self._qos, self._ack_bytes = qos, 0
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(encode.connect(4, "load", clean=True, keep_alive_s=0))
        if self._socket.recv(4) != b"\x20\x02\x00\x00":
            raise RuntimeError("expected the broker to take the connection")

    def run(self, rate: float, seconds: float) -> None:
        """Sends `rate` messages a second for so long."""
        start = time.perf_counter()
        total = int(rate * seconds)
        while self.sent < total:
            now = time.perf_counter() - start
            due = min(total, int(now * rate))
            if due > self.sent:
                self.latest = max(self.latest, now - self.sent / rate)
                self._send(due)
            self._read_acknowledgements()
            time.sleep(max(0.0, TICK_S - (time.perf_counter() - start - now)))
        deadline = time.perf_counter() + DRAIN_S
        while self._qos and self.acknowledged < self.sent and time.perf_counter() < deadline:
            self._read_acknowledgements()
            time.sleep(TICK_S)

    def _send(self, due: int) -> None:
        length = len(self.packets)
        while self.sent < due:
            first = self.sent % length
            last = min(length, first + due - self.sent)
            self._socket.sendall(self.packets.take(first, last, time.time()))
            self.sent += last - first

    def _read_acknowledgements(self) -> None:
        if self._qos:
            try:
                while chunk := self._socket.recv(1 << 16, socket.MSG_DONTWAIT):
                    self._ack_bytes += len(chunk)
            except BlockingIOError:
                pass
            self.acknowledged = self._ack_bytes // 4


def main() -> None:
    """Says `ready`, waits for a line, sends, and says as JSON what it did."""
    parser = argparse.ArgumentParser("load")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--qos", type=int, default=0)
    arguments = parser.parse_args()
    load = Load(arguments.port, arguments.qos)
    print("ready", flush=True)
    sys.stdin.readline()
    load.run(arguments.rate, arguments.seconds)
    told = {"sent": load.sent, "acknowledged": load.acknowledged, "latest_ms": round(load.latest * 1e3, 2)}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
