"""`python -m edgert.demo.publisher`: publishes this machine's sensors once a second, or a trace at a rate; QoS 1."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion

from edgert.core import log as logs
from edgert.core.errors import EdgertError
from edgert.demo import sensors, trace

log = logging.getLogger("edgert.demo.publisher")

PERIOD_S = 1.0
MOST_UNACKNOWLEDGED = 500
"""A broker that is slower than the rate slows the replay down, instead of filling this process."""
FLUSH_S = 5.0


class Publisher:
    """A connection that comes back by itself, with a bounded number of messages under way."""

    def __init__(self, host: str, port: int) -> None:
        self._room = threading.Semaphore(MOST_UNACKNOWLEDGED)
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=f"edgert-demo-publisher-{os.getpid()}")
        self._client.max_inflight_messages_set(200)
        self._client.on_publish = lambda *_: self._room.release()
        self._client.reconnect_delay_set(1, 5)
        self._client.connect_async(host, port)
        self._client.loop_start()
        self.stopping = threading.Event()
        self.sent = 0

    def publish(self, topic: str, payload: bytes) -> MQTTMessageInfo | None:
        """Hands over one message; waits while too many are unacknowledged. None when stopping."""
        while not self._room.acquire(timeout=0.2):
            if self.stopping.is_set():
                return None
        self.sent += 1
        return self._client.publish(topic, payload, qos=1)

    def close(self, last: MQTTMessageInfo | None) -> None:
        """Waits a little for the last acknowledgement, then disconnects."""
        if last is not None and self._client.is_connected():
            last.wait_for_publish(FLUSH_S)
        self._client.disconnect()
        self._client.loop_stop()


def publish_sensors(publisher: Publisher, host: str) -> MQTTMessageInfo | None:
    """One set of measurements a second, until stopped."""
    before = sensors.read(time.time())
    due = time.monotonic() + PERIOD_S
    last = None
    while not publisher.stopping.wait(max(0.0, due - time.monotonic())):
        due = max(due + PERIOD_S, time.monotonic())
        now = sensors.read(time.time())
        for measurement in sensors.measurements(host, before, now):
            last = publisher.publish(measurement.topic, measurement.senml())
        before = now
    return last


def publish_trace(
    publisher: Publisher, path: Path, rate: float, repeat: bool, original_times: bool
) -> MQTTMessageInfo | None:
    """The trace at `rate` messages a second, once or again and again. Times become those of the publication."""
    last = None
    began = time.monotonic()
    for index, message in enumerate(_messages(path, repeat)):
        if publisher.stopping.wait(max(0.0, began + index / rate - time.monotonic())):
            break
        last = publisher.publish(message.topic, message.payload(None if original_times else time.time()))
    return last


def _messages(path: Path, repeat: bool) -> Iterator[trace.Recorded]:
    for turn in itertools.count():
        if turn and not repeat:
            return
        yield from trace.read(path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m edgert.demo.publisher", description=__doc__)
    parser.add_argument("--broker", required=True, metavar="HOST:PORT")
    parser.add_argument("--host", default="machine", help="first part of the sensors' names")
    parser.add_argument("--trace", type=Path, metavar="FILE")
    parser.add_argument("--rate", type=float, default=100.0, metavar="N", help="messages per second of a trace")
    parser.add_argument("--repeat", action="store_true", help="begin the trace again at its end")
    parser.add_argument("--original-times", action="store_true", help="keep the times of the trace")
    args = parser.parse_args(arguments)
    logs.set_up()
    host, _, port = args.broker.rpartition(":")
    publisher = Publisher(host, int(port))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: publisher.stopping.set())
    last = None
    try:
        if args.trace is None:
            last = publish_sensors(publisher, args.host)
        else:
            last = publish_trace(publisher, args.trace, args.rate, args.repeat, args.original_times)
    except EdgertError as problem:
        print(f"publisher: {problem}", file=sys.stderr)
        return 1
    finally:
        publisher.close(last)
    log.info("published %d messages", publisher.sent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
