"""Answers of the sensors' broker to subscriptions: a subscription may be refused, or given a lower QoS."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from edgert.mqtt.hang_ups.rules import HUNG_UP
from edgert.mqtt.packets.packets import reason_text

log = logging.getLogger(__name__)

LEFT_OUT: Final = "it hangs up at it, so it is left out and tried again now and then (its access rules?)"


class FilterGrants:
    """Bookkeeping by filter. A fault is logged when it is new, and known until the broker answers otherwise."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Filter → why the broker does not let us subscribe."""
        self.lowered: dict[str, str] = {}
        """Filter → which QoS it has instead of which: at QoS 0 nothing is kept for us, and nothing sent again."""

    def answered(self, topic_filter: str, asked: int, reason: int) -> None:
        """`asked`: the QoS that was asked for; `reason`: the granted one, or >= 0x80 where it is refused."""
        refused, lowered = self.refused.pop(topic_filter, ""), self.lowered.pop(topic_filter, "")
        if reason >= 0x80:
            why = self.refused[topic_filter] = LEFT_OUT if reason == HUNG_UP else reason_text(reason)
            if why != refused:
                log.error("the broker refuses the subscription to %s: %s", topic_filter, why)
        elif reason < asked:
            which = self.lowered[topic_filter] = f"QoS {reason} instead of {asked}"
            if which != lowered:
                log.error("the broker grants %s to the subscription to %s", which, topic_filter)

    def keep(self, filters: Collection[str]) -> None:
        """Only these are subscribed by now."""
        for faults in (self.refused, self.lowered):
            for gone in faults.keys() - set(filters):
                del faults[gone]

    @property
    def error(self) -> str:
        """All faults, for people; empty where there is none."""
        return "; ".join([
            *(f"subscription to {f} refused: {why}" for f, why in self.refused.items()),
            *(f"subscription to {f} has {which}" for f, which in self.lowered.items()),
        ])  # fmt: skip
