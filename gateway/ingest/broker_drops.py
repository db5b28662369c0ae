"""Messages that the sensors' broker itself drops: silently, but for a counter that it publishes.

Mosquitto has it on `$SYS/broker/publish/messages/dropped`, retained: how many messages have found the queue of a client
full since the broker started, whichever client that was. So it says more than what is missing here, and never less. The
last value is kept over restarts: a queue overflows just while the gateway is away.

Some brokers hang up on a client that asks for such a topic. So until a broker has granted it, it is asked for when the
flows' own subscriptions are answered; and what became of that is kept over restarts, too.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from edgert.core.checkpoint.position import Position
from edgert.core.errors import show
from edgert.runtime.checkpoint.progress import Progress
from gateway.ingest.inbox import Reader
from gateway.ingest.subscriptions import SubscribedSource

log = logging.getLogger(__name__)

QUIET_S = 600.0
"""After so long without a drop the next one is said in the log again."""
MOST_CUTS = 2
"""Connections in a row that may end before the broker has answered to the subscription. Then the gateway does not ask
again until the broker or the topic is another. One connection may have ended for another reason."""
SAVE_S = 300.0
"""A value waits so long at most for a commit to be written with."""
MOST_DIGITS = 18


class BrokerDrops:
    """`topic`: empty if nobody wants to know. `broker`: its address; what another one said is no baseline."""

    def __init__(self, topic: str, broker: str) -> None:
        self.topic = topic
        self.dropped: int | None = None
        """Messages since the last value that was kept, of any client; None while nothing has come."""
        self.bad = 0
        """Payloads that are no count."""
        self.broker = broker
        # nothing is ever owed to it, and a message that is delivered again tells it an old count
        self._reader = Reader(Progress(Position(sys.maxsize)), None, retained=True, take_untrusted=self.take_untrusted)
        self._last: int | None = None
        self._saved: int | None = None
        self._unsaved_since = 0.0
        self._grew_at = float("-inf")
        self._refused = ""
        self._asked = False
        self._cuts = 0
        self._granted = False
        """The broker has granted it, to this process or to one before."""
        self._ready = False
        """True if the subscription may be asked for on this connection."""
        self._saved_answer = 0, 0

    @property
    def source(self) -> SubscribedSource | None:
        """For the subscriptions; None if there is nothing to ask for. QoS 0: the next value makes up for a lost one,
        and the broker must not queue them for us while we are away."""
        wanted = self.topic and self._cuts < MOST_CUTS and (self._granted or self._ready)
        return SubscribedSource("", self.topic, 0, self._reader) if wanted else None

    def may_be_asked(self) -> bool:
        """The flows' subscriptions are answered; whether there is a `source` now that there was not before."""
        before, self._ready = self._ready or self._granted, True
        return not before and self.source is not None

    @property
    def unseen(self) -> str:
        """Why it is not known what the broker drops; empty if it is."""
        if not self.topic:
            return "not asked for: sensors.drops_topic is empty"
        if self._cuts >= MOST_CUTS:
            return (
                f"{MOST_CUTS} connections ended before the subscription to {self.topic} was answered: it "
                "hangs up at it, and is not asked again"
            )
        if self._refused:
            return f"subscription to {self.topic} refused: {self._refused}"
        return f"nothing has come on {self.topic} yet" if self.dropped is None else ""

    # -- what outlives the process

    def load(self, text: str) -> None:
        """Loads the text of `to_save`, empty at the first start. A damaged one is ignored."""
        with suppress(msgspec.MsgspecError):
            saved = msgspec.json.decode(text or "{}", type=dict[str, str | int | None])
            if (saved.get("broker"), saved.get("topic")) == (self.broker, self.topic):
                found = saved.get("dropped")
                self._last = self._saved = found if isinstance(found, int) else None
                granted, cuts = saved.get("granted"), saved.get("cuts")
                self._granted, self._cuts = granted == 1, cuts if isinstance(cuts, int) else 0
                self._saved_answer = self._its_answer

    @property
    def _its_answer(self) -> tuple[int, int]:
        return int(self._granted), self._cuts

    @property
    def unsaved(self) -> bool:
        return self._last != self._saved or self._its_answer != self._saved_answer

    def due(self, now: float) -> bool:
        """True if the unsaved value is to be written by itself: it is the first one ever, without which a restart could
        compare nothing, or it has waited for long, and a crash would count it twice."""
        new = self._saved is None or self._its_answer != self._saved_answer
        return self.unsaved and (new or now - self._unsaved_since >= SAVE_S)

    def to_save(self) -> str:
        """The text to store, empty if it is stored already. On the store thread."""
        last, answer = self._last, self._its_answer
        if (last, answer) == (self._saved, self._saved_answer):
            return ""
        self._saved, self._saved_answer = last, answer
        about = {"broker": self.broker, "topic": self.topic, "dropped": last}
        return json.dumps({**about, "granted": answer[0], "cuts": answer[1]})

    # -- the subscription

    def asked(self) -> None:
        """The subscription was sent."""
        self._asked = True

    def answered(self, refusal: str) -> None:
        """Takes the broker's answer; `refusal` is empty if the subscription was granted."""
        self._asked, self._cuts, self._granted = False, 0, not refusal
        if refusal and refusal != self._refused:
            log.warning(
                "the broker refuses the subscription to %s (%s): what it drops is not seen; sensors.drops_topic may "
                "name another topic, or none",
                self.topic, refusal,
            )  # fmt: skip
        self._refused = refusal

    def disconnected(self) -> None:
        """After too many without an answer there is no `source` any more."""
        self._ready = False
        if self._asked:
            self._asked = False
            self._cuts += 1
            if self._cuts == MOST_CUTS:
                log.warning("what the sensors' broker drops is not seen: %s", self.unseen)

    # -- values

    def take_untrusted(self, payloads: Sequence[bytes], now: float) -> None:
        """Values in the order in which they came; `now`: seconds on a monotonic clock."""
        grown = 0
        for payload in payloads:
            value = _count(payload)
            if value is None:
                self._take_bad(payload)
                continue
            grown += self._since_the_last(value)
            if not self.unsaved:
                self._unsaved_since = now
            self._last = value
            self.dropped = self.dropped or 0
        if not grown:
            return
        self.dropped = (self.dropped or 0) + grown
        if now - self._grew_at > QUIET_S:
            log.warning(
                "the sensors' broker dropped %d messages of some of its clients' queues, this gateway's or others': it "
                "does not say whose. On Mosquitto max_queued_messages and max_queued_bytes set the limits",
                grown,
            )
        self._grew_at = now

    def _since_the_last(self, value: int) -> int:
        """The first value ever is where counting begins; a smaller one means that the broker has started anew."""
        if self._last is None:
            return 0
        return value - self._last if value >= self._last else value

    def _take_bad(self, payload: bytes) -> None:
        self.bad += 1
        if self.bad == 1:
            log.warning("expected a count on %s (sensors.drops_topic), got %s", self.topic, show(payload[:100]))


def _count(payload: bytes) -> int | None:
    digits = payload.strip()
    return int(digits) if digits.isdigit() and len(digits) <= MOST_DIGITS else None
