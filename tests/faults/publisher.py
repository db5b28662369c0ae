"""A publisher of QoS 1 messages that knows what it has sent, and what the tables must say of it.

Message number j of a source within a window carries 2^j. A window with k messages that were counted once each has
n = k and sum = 2^k - 1, and no other way to count them has both: one lost and another doubled shows, too. Its sums are
exact in a double, since a window has at most `MOST` messages of a source.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as paho

from tests.integration.rig import Message
from tests.waiting import wait_until

SOURCES = 8
WINDOW_S = 0.5
MOST = 50
FLOW = "faults"
OUT = "out"
"""Topics below it: what the flow gives out."""
PATIENCE_S = 120.0
"""With a broker that runs: nothing of ours is awaited, so only a busy machine takes long."""
Window = tuple[float, str]
"""(window start, source)."""


def document(
    interval_s: float, delivery: str, wider: bool = False, window_s: float = WINDOW_S, late: str = "ship",
    publishes: bool = False,
) -> dict[str, object]:  # fmt: skip
    """The flow of all seeds: messages per source and window, and their sum; if `wider`, the greatest of them, too. If
    it `publishes`, each message is also given out on the sensors' broker, and results have a sketch: they are large."""
    aggregates = {"n": "count()", "bits": "sum(bit)"} | ({"top": "max(bit)"} if wider else {})
    aggregates |= {"times": "quantiles(time)"} if publishes else {}
    out = {"type": "publish", "input": "valid", "topic": f"{OUT}/{{source}}", "qos": 1}
    return {
        "name": FLOW,
        "delivery": delivery,
        "checkpoint": {"interval_s": interval_s},
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "faults/{source}/sense", "codec": "json"},
            "valid": {"type": "filter", "input": "readings", "where": "bit > 0"},
            "by-sensor": {"type": "key_by", "input": "valid", "keys": ["source"]},
            "window": {
                "type": "tumbling_window",
                "input": "by-sensor",
                "size_s": window_s,
                "late": late,
                "aggregates": aggregates,
            },
            "central": {"type": "ship", "input": "window"},
            **({"out": out} if publishes else {}),
        },
    }


class Publisher:
    """Sends in a thread of its own from `start` to the end of `duration_s`, except while paused.

    `pause` returns when the broker has acknowledged all: so nothing is ever sent twice by this side, and what it sent
    is what the sensors' broker has, also if that one is killed meanwhile.
    """

    def __init__(self, port: int, rate: float, duration_s: float) -> None:
        assert rate / SOURCES * WINDOW_S <= MOST
        self.truth: Counter[Window] = Counter()
        self.sent = 0
        self.rate = rate
        self.keep_on = False
        """True: messages go on beyond `duration_s` until `finish`, so that the last fault is under load, too."""
        self.poison = 0
        """So many messages to come have a field of this name, by which a hop may know them."""
        self.poisoned: list[float] = []
        self.times: list[float] = []
        """Times of messages with that field, and of all: no two have the same."""
        self._messages = int(rate * duration_s)
        self._base = time.time() // WINDOW_S * WINDOW_S
        self._lock = threading.Lock()
        """Held while one message is handed over, and by whoever pauses."""
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)  # type: ignore[attr-defined]
        self._client.reconnect_delay_set(1, 1)
        self._client.max_inflight_messages_set(500)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._stop = threading.Event()

    def start(self) -> None:
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def pause(self) -> None:
        """Until `resume`. Returns when nothing is under way."""
        self._lock.acquire()
        self._settle()

    def resume(self) -> None:
        """Returns when there is a connection again."""
        wait_until(self._client.is_connected, "the publisher's connection", PATIENCE_S)
        self._lock.release()

    def finish(self) -> None:
        """Returns when all was sent and acknowledged."""
        self.keep_on = False
        self._thread.join(self._messages / self.rate + PATIENCE_S)
        assert self.done, "the publisher did not come to its end"
        self._settle()

    def more(self, messages: int = 1) -> None:
        """At once, after all others, counted as they are; while nothing else is sent."""
        for _ in range(messages):
            self._send()
        self._settle()

    def close(self) -> None:
        self._stop.set()
        self._client.disconnect()
        self._client.loop_stop()

    def _run(self) -> None:
        started = time.monotonic()
        for sent in itertools.count():
            if sent >= self._messages and not self.keep_on:
                return
            if self._stop.wait(max(0.0, sent / self.rate - (time.monotonic() - started))):
                return
            with self._lock:
                self._send()

    def _send(self) -> None:
        at = self._base + self.sent / self.rate
        source = f"s{self.sent % SOURCES}"
        window = (at // WINDOW_S * WINDOW_S, source)
        fields: dict[str, Any] = {"time": at, "bit": 1 << self.truth[window]}
        if self.poison:
            self.poison -= 1
            fields["poison"] = 1
            self.poisoned.append(at)
        self.times.append(at)
        message: Message = (f"faults/{source}/sense", json.dumps(fields).encode())
        self._client.publish(*message, qos=1)
        self.truth[window] += 1
        self.sent += 1

    def _settle(self) -> None:
        wait_until(lambda: not self._client._out_messages, "PUBACKs for the publisher", PATIENCE_S)


def window_of(row: Mapping[str, Any]) -> Window:
    """In which a row of a table counts, though it may be of a shorter one."""
    return row["window_start"].timestamp() // WINDOW_S * WINDOW_S, row["source"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Between what was sent and what landed."""

    lost: int = 0
    doubled: int = 0
    windows: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.windows)


def compare(truth: Mapping[Window, int], rows: Iterable[Mapping[str, Any]]) -> Difference:
    """`rows`: all that landed and count, or those of the fleet tables."""
    counts: Counter[Window] = Counter()
    bits: Counter[Window] = Counter()
    for row in rows:
        counts[window_of(row)] += row["n"] or 0
        bits[window_of(row)] += int(row["bits"] or 0)
    lost = doubled = 0
    wrong = []
    for window in sorted(truth.keys() | counts.keys()):
        want, got, sum_ = truth.get(window, 0), counts[window], bits[window]
        difference = sum_ - ((1 << want) - 1)
        if got == want and not difference:
            continue
        # as many as are known for sure; with equal counts some are lost and as many doubled
        lost += max(0, want - got) or int(got == want)
        doubled += max(0, got - want) or int(got == want)
        wrong.append(
            f"window {window[0]:.1f} of {window[1]}: {got} messages instead of {want}, sum off by {difference}"
        )
    return Difference(lost, doubled, tuple(wrong))
