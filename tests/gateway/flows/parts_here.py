"""Parts of flows of a gateway in this process, as the daemon has them."""

from __future__ import annotations

from typing import cast

from edgert.flow.plan import Location
from gateway.flows.parts import Parts
from gateway.links.flow_links import FlowLinks
from tests.gateway.whole_gateway import Gateway

AT = dict.fromkeys(("in", "minute", "out"), Location("g1", -1))
GUEST = {**AT, "in": Location("g2", -1)}
"""The part here has no source."""


class Links:
    """Notes which flows are held."""

    def __init__(self) -> None:
        self.held: set[str] = set()

    def hold(self, flow: str) -> None:
        self.held.add(flow)

    def release(self, flow: str) -> None:
        self.held.discard(flow)


def parts_of(gateway: Gateway) -> tuple[Parts, Links]:
    """As the daemon begins with them."""
    own, links = gateway.database.gateway, Links()
    parts = Parts(
        own, gateway.flows, gateway.host, gateway.database, gateway.store, gateway.clock, cast(FlowLinks, links)
    )
    parts.load()
    parts.loaded()
    return parts, links
