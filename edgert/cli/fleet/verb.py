"""`edgert fleet`: the boards of the fleet as this board's agent knows them, and the fleet's keys."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgert.cli import _broker
from edgert.cli._control import add_action, ask_fleet
from edgert.cli.fleet import acl, boards, flows, keys, revoked, service, token, update

HELP = "members of the fleet with their distances, the fleet's keys, and rules for its broker"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, text, act in (
        ("status", "members, their state, coordinates, estimated and measured times, ids of their keys", _status),
        ("leave", "this board's agent says goodbye to the fleet and ends", _leave),
    ):
        action = add_action(actions, name, text)
        action.set_defaults(act=act)
    action.add_argument(
        "--force", action="store_true",
        help="also while it has parts of flows: operators that it runs for other boards stand still from then on",
    )  # fmt: skip
    flows.add(actions)
    acl.add(actions)
    boards.add(actions)
    service.add(actions)
    token.add(actions)
    keys.add(actions)
    update.add(actions)
    revoked.add(actions)


def run(args: argparse.Namespace) -> int:
    with _broker.errors_name_options(args):
        status: int = args.act(args)
    return status


def _status(args: argparse.Namespace) -> int:
    found = ask_fleet(args, "fleet.status")
    print(json.dumps(found, indent=2) if args.json else "\n".join(lines(found)))
    return 0


def _leave(args: argparse.Namespace) -> int:
    found = ask_fleet(args, "fleet.leave", {"force": args.force})
    left = "the agent has left the fleet"
    print(json.dumps(found) if args.json else f"{left}, but {found['counted']}" if "counted" in found else left)
    return 0


def lines(found: Mapping[str, Any]) -> list[str]:
    """The status of a fleet for a terminal."""
    from edgert.cli._control import duration, table, wrapped

    head = ("gateway", "state", "for", "address", "cores", "speed", "load", "RTT")
    rows = [_row(member, duration) for member in found["members"]]
    alive = sum(member["state"] == "alive" for member in found["members"])
    gateway, counters = found["local_gateway"], found["counters"]
    drops = ", ".join(f"{count} {reason}" for reason, count in sorted(counters["drops"].items())) or "none"
    away = "" if gateway["connected"] else f"; its gateway does not answer: {gateway['error']}"
    texts = [
        f"fleet {found['fleet']}, seen by {found['gateway']}: {alive} of {len(found['members'])} alive{away}",
        *_smaller_side(found),
    ]
    below = [
        *filter(None, map(_note, found["members"])),
        *_keys(found["members"]),
        f"packets dropped: {drops}; own health: {found['health']} (0 is best)",
    ]
    above, after = ([part for text in some for part in wrapped(text)] for some in (texts, below))
    return [*above, "", *table(head, rows, left=4), "", *after]


def _smaller_side(found: Mapping[str, Any]) -> Sequence[str]:
    """A line where this board reaches no majority of its fleet."""
    known = found.get("coordination", {"majority": True})
    if known["majority"]:
        return ()
    if not known["boards"]:
        return ("this board has met no fleet yet: do the boards of its agent.seeds run, and have they its key?",)
    text = (
        f"this board reaches {len(known['reached'])} of the fleet's {len(known['boards'])} boards: it changes no flow."
    )
    if blank := known.get("blank"):
        text += f" Without a vote yet, as with a new disk: {', '.join(blank)}."
    gone = known.get("long_gone", ())
    return text, *(f"if {board} is gone for good: edgert fleet forget {board} --force" for board in gone)


def _row(member: Mapping[str, Any], duration: Any) -> Sequence[str]:
    host, port = member["address"]
    name = member["gateway"] + (" *" if member["self"] else "")
    facts = [
        _text(member["board"].get("cores")),
        _text(member["board"].get("speed")),
        _text(member["load"].get("load")),
    ]
    return name, member["state"], duration(member["since_s"]), f"{host}:{port}", *facts, _rtt(member)


def _rtt(member: Mapping[str, Any]) -> str:
    """The round-trip time that was measured, else the estimate by coordinates."""
    if member["measured_ms"] is not None:
        return f"{member['measured_ms']:.3g} ms"
    return "-" if member["estimated_ms"] is None else f"~{member['estimated_ms']:.3g} ms"


def _note(member: Mapping[str, Any]) -> str:
    """A line about a board whose gateway is down, or that is drained; empty for others."""
    down = "gateway down" if member["flows"].get("gateway") is False else ""
    drained = "drained" if member["board"].get("drained") is True else ""
    told = ", ".join(filter(None, (down, drained)))
    return f"{member['gateway']}: {told}" if told else ""


def _keys(members: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines with the ids of the boards' keys, the sealing one first: one line where all have the same."""
    boards: dict[str, list[str]] = {}
    for member in members:
        ids = member["board"].get("keys")
        if isinstance(ids, list) and ids:
            boards.setdefault(" ".join(str(one) for one in ids if str(one).isalnum()), []).append(member["gateway"])
    all_told = sum(map(len, boards.values())) == len(members)
    for ids, names in boards.items():
        yield f"keys {ids}: {'all boards' if len(boards) == 1 and all_told else ', '.join(names)}"


def _text(value: object) -> str:
    """A number from another board, as a cell of the table."""
    return f"{value:g}" if isinstance(value, int | float) else "-"
