"""Log lines about the fleet's members."""

from __future__ import annotations

import logging

from agent.membership.events import Changed, Conflict, Contested, MemberEvent

log = logging.getLogger(__name__)


def tell(event: MemberEvent, own: str) -> None:
    """Logs an event if people should read it. `own`: this agent's name."""
    match event:
        case Conflict(address):
            log.error(
                "an agent at %s:%d has the name of this one, %s: give each board its own gateway.id; the one that the"
                " others reach stays until it has gone", *address, own,
            )  # fmt: skip
        case Contested(name, held, refused):
            log.warning(
                "two agents have the name %s: the one at %s:%d stays, the one at %s:%d is refused; give each board its"
                " own gateway.id", name, *held, *refused,
            )  # fmt: skip
        case Changed(name, what, _) if what != "updated":
            log.log(logging.DEBUG if what in ("suspected", "refuted") else logging.INFO, "member %s: %s", name, what)
        case _:
            pass
