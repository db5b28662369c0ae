"""The objects that `fleet.status` and `fleet.flows` answer: what this agent knows of the fleet, and of its flows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from agent.coordinates.rounds import Rounds
from agent.membership.members import Member
from agent.membership.messages import coordinate_untrusted
from agent.migration.plan_change import Part
from agent.network.transport import Transport
from edgert.core.errors import EdgertError, PayloadError
from edgert.core.packing import unpack_untrusted

SILENT: Final = "does not answer"
LACKS: Final = "has no part"
FORGOTTEN: Final = "is not in this fleet"
"""In place of the state of a part."""


def section_untrusted(member: Member, name: str) -> Mapping[str, Any]:
    """A section of a member's state as a map; empty where it has none or it is no map."""
    section = member.sections.get(name)
    if section is None:
        return {}
    try:
        plain = unpack_untrusted(section.payload, len(section.payload), 256)
    except PayloadError:
        return {}
    return plain if isinstance(plain, dict) else {}


def labels_untrusted(member: Member) -> frozenset[str]:
    """The labels of a member's board, each NAME=VALUE."""
    labels = section_untrusted(member, "board").get("labels")
    return frozenset(f"{key}={value}" for key, value in labels.items()) if isinstance(labels, dict) else frozenset()


def link_untrusted(member: Member) -> list[Any] | None:
    """[host, port] of the links of a member's gateway; None where it has told none."""
    link: Any = section_untrusted(member, "board").get("link")
    fits = isinstance(link, list) and len(link) == 2 and isinstance(link[0], str) and type(link[1]) is int
    return link if fits and link[1] > 0 else None


def flows_untrusted(member: Member) -> Iterator[str]:
    """The flows of which a member tells that it has a part."""
    told = section_untrusted(member, "flows")
    for names in (told.get("flows"), told.get("prepared")):
        if isinstance(names, dict | list):
            yield from (name for name in names if isinstance(name, str))


def check_links(members: Iterable[Member], on: Mapping[str, str]) -> None:
    """Raises `EdgertError` where a flow would run on several boards, and one of them has told no address for links: no
    row would reach it. One whose gateway is away for a moment may pass: it tells the address again when it is back.
    `on`: operator -> gateway."""
    boards, known = set(on.values()), list(members)
    fit = {m.name for m in known if link_untrusted(m) or section_untrusted(m, "flows").get("gateway") is False}
    lacking = sorted(boards - fit)
    if len(boards) > 1 and lacking:
        told = {member.name for member in known if section_untrusted(member, "board")}
        raise EdgertError(
            f"expected boards to which others can send rows, got {', '.join(lacking)}, of which no address for links is"
            f" known: {'is links.enabled set there?' if told.issuperset(lacking) else 'try again in some seconds'}"
        )


def coordinate_of(member: Member) -> tuple[float, ...]:
    """The application-level coordinate that a member publishes; empty where it has none."""
    try:
        return coordinate_untrusted(section_untrusted(member, "coordinate").get("at", []))
    except ValueError:
        return ()


def members(transport: Transport, rounds: Rounds, now: float) -> list[dict[str, Any]]:
    """One object per member, by name. Times in seconds, round-trip times in ms (None: unknown)."""
    roster = transport.membership.roster
    return [_member(member, roster.own, rounds, now) for member in sorted(roster, key=lambda m: m.name)]


def _member(member: Member, own: Member, rounds: Rounds, now: float) -> dict[str, Any]:
    ours, theirs = coordinate_of(own), coordinate_of(member)
    estimate = rounds.algorithm.estimate_ms(ours, theirs) if ours and theirs and member is not own else None
    measured = rounds.filter.get(member.name)
    return {
        "gateway": member.name,
        "self": member is own,
        "state": member.state.name.lower(),
        "since_s": round(now - member.since, 1),
        "epoch": member.version.epoch,
        "incarnation": member.version.incarnation,
        "address": list(member.address),
        "board": section_untrusted(member, "board"),
        "load": section_untrusted(member, "load"),
        "flows": section_untrusted(member, "flows"),
        "coordinate": [round(number, 3) for number in theirs],
        "estimated_ms": None if estimate is None or estimate == float("inf") else round(estimate, 3),
        "measured_ms": None if measured is None else round(measured, 3),
    }


def counters(transport: Transport) -> dict[str, Any]:
    """Packets that were sent, received and dropped since the start."""
    membership = transport.membership
    return {
        "sent_bytes": transport.frames.traffic.sent,
        "received_bytes": transport.frames.traffic.received,
        "refused_connections": transport.refused_connections,
        "refused_members": membership.claims.refused_members,
        "stalls": membership.stalls,
        "drops": dict(transport.sealer.drops),
    }


def overview(
    known: Mapping[str, Mapping[str, Part]],
    statuses: Mapping[str, Mapping[str, Any]],
    coordinator_of: Callable[[str], str],
    of_fleet: Collection[str],
) -> dict[str, dict[str, Any]]:
    """Returns what `fleet.flows` says of each flow. `known`: gateway -> its parts, of all that answer; `statuses`:
    theirs, empty where conditions are not asked for; `of_fleet`: boards that vote in this fleet, or join it."""
    found: dict[str, dict[str, Any]] = {}
    for gateway, parts in known.items():
        for flow, part in parts.items():
            if not part.get("assignment"):
                continue
            one = found.setdefault(flow, {"coordinator": coordinator_of(flow), "plan": 0, "boards": {}})
            one["boards"][gateway] = part["state"]
            if condition := _not_well(statuses.get(gateway, {}), flow):
                one.setdefault("conditions", {})[gateway] = condition
            if part["plan"] >= one["plan"]:
                one["plan"] = part["plan"]
                one["assignment"] = {operator: at[0] for operator, at in part["assignment"].items()}
                one["rules"] = part.get("rules", {})
    for flow, one in found.items():
        for gateway in sorted(set(one["assignment"].values()) - one["boards"].keys()):
            why = LACKS if gateway in known else SILENT if gateway in of_fleet else FORGOTTEN
            text = f"flow {flow}: {why}" + (f"; {anew(flow)}" if why == FORGOTTEN else "")
            one["boards"][gateway] = why
            one.setdefault("conditions", {})[gateway] = {"level": "bad", "state": why, "text": text}
    return found


def anew(flow: str) -> str:
    """Says what to do with a flow that has a part on a board which is not in this fleet."""
    return f"where it is gone for good: edgert fleet remove {flow}, then deploy the flow again"


def _not_well(status: Mapping[str, Any], flow: str) -> Mapping[str, Any] | None:
    """The condition of a flow in the status of a gateway, if it is bad or a warning."""
    for told in status.get("flows", ()):
        condition: Mapping[str, Any] = told.get("condition", {})
        if told.get("name") == flow and condition.get("level") in ("bad", "warning"):
            return condition
    return None
