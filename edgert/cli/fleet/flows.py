"""`edgert fleet deploy | flows | move | remove`: flows that run on several boards."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from edgert.cli._control import add_action, ask_fleet, boards_with_operators, by_board
from edgert.cli.fleet import moves, plans, top, trace
from edgert.core.errors import EdgertError
from edgert.core.ids import short
from edgert.flow.versions.kept_state import kept_state_untrusted

BARS: Final = "▁▂▃▄▅▆▇█"


def add(actions: Any) -> None:
    """Adds the actions."""
    deploy = add_action(actions, "deploy", "deploy a flow for the fleet")
    deploy.add_argument("file", type=Path, help="the flow's document")
    deploy.add_argument(
        "--place", action="append", default=[], metavar="OPERATOR=GATEWAY",
        help="run the operator on that board; others run where their input does, sources on the board that is asked",
    )  # fmt: skip
    deploy.add_argument(
        "--require", action="append", default=[], metavar="OPERATOR:NAME=VALUE",
        help="run the operator only on boards with that label",
    )  # fmt: skip
    deploy.add_argument(
        "--heuristic", default="", metavar="NAME",
        help="look every 10 s with this heuristic for a better placement of operators without --place, and move them"
        " there (default: only crowded boards give operators to others)",
    )  # fmt: skip
    deploy.set_defaults(act=_deploy)
    rules = add_action(actions, "rules", "the rules of a flow's placement, and changes of them")
    rules.add_argument("flow")
    rules.add_argument(
        "--unpin", action="append", default=[], metavar="OPERATOR",
        help="let an operator move by itself that --place or `move` put where it is",
    )  # fmt: skip
    rules.add_argument(
        "--heuristic",
        metavar="NAME",
        help="look every 10 s with this heuristic for a better placement, and move operators there; none: only crowded"
        " boards give operators to others",
    )
    rules.set_defaults(act=_rules)
    text = "flows of the fleet: where their operators run, and who coordinates them"
    add_action(actions, "flows", text).set_defaults(act=_flows)
    move = add_action(actions, "move", "move an operator of a running flow to another board, with its state")
    move.add_argument("flow")
    move.add_argument("operator", help="an operator, or a copy of one (minute#2)")
    move.add_argument("gateway", help="the board that is to run it")
    move.set_defaults(act=_move)
    plans.add(actions)
    top.add(actions)
    trace.add(actions)
    moves.add(actions)
    text = "the load that each board predicts for the next three minutes"
    add_action(actions, "rings", text).set_defaults(act=_rings)
    remove = add_action(actions, "remove", "end a flow of the fleet; its open windows are shipped")
    remove.add_argument("flow")
    remove.set_defaults(act=_remove)
    text = "say that a board is gone for good: it votes no more, what it ran can be removed and deployed elsewhere"
    forget = add_action(actions, "forget", text)
    forget.add_argument("board")
    forget.add_argument(
        "--force", action="store_true",
        help="also where most boards of the fleet do not answer: only if you know that those are gone, too;"
        " say it on each board that is left",
    )  # fmt: skip
    forget.set_defaults(act=_forget)


def _deploy(args: argparse.Namespace) -> int:
    from edgert.cli._documents import load, notes, registry

    flow = load(args.file, registry())
    asked = {
        "document": dict(flow.document),
        "pins": dict(map(_pin, args.place)),
        "labels": _labels(args.require),
        "heuristic": _heuristic(args.heuristic),
    }
    found = ask_fleet(args, "fleet.deploy", asked)
    said = f"flow {found['flow']} runs by plan {short(found['plan'])}: {by_board(found['assignment'])}"
    for note in notes(flow):
        print(f"edgert: {note}", file=sys.stderr)
    lines = [said, *kept_state_untrusted(found.get("state")).sentences(done=True)]
    print(json.dumps(found, indent=2) if args.json else "\n".join(lines))
    return 0


def _pin(text: str) -> tuple[str, str]:
    operator, _, gateway = text.partition("=")
    if not operator or not gateway:
        raise EdgertError(f"--place: expected OPERATOR=GATEWAY, got {text!r}")
    return operator, gateway


def _labels(required: Sequence[str]) -> dict[str, list[str]]:
    """Operator -> labels."""
    found: dict[str, list[str]] = {}
    for text in required:
        operator, _, label = text.partition(":")
        if not operator or "=" not in label:
            raise EdgertError(f"--require: expected OPERATOR:NAME=VALUE, got {text!r}")
        found.setdefault(operator, []).append(label)
    return found


def _heuristic(name: str) -> str:
    return "" if name == "none" else name


def _rules(args: argparse.Namespace) -> int:
    changes = {} if args.heuristic is None else {"heuristic": _heuristic(args.heuristic)}
    found = ask_fleet(args, "fleet.rules", {"flow": args.flow, "unpin": args.unpin, **changes})
    print(json.dumps(found, indent=2) if args.json else "\n".join(rules_lines(found)))
    return 0


def rules_lines(found: Mapping[str, Any]) -> list[str]:
    """The rules of a flow for a terminal."""
    pins = ", ".join(f"{operator} on {gateway}" for operator, gateway in found["pins"].items()) or "none"
    labels = ", ".join(f"{operator} needs {' '.join(one)}" for operator, one in found["labels"].items()) or "none"
    heuristic = f"moved to better placements that the heuristic {found['heuristic']} finds"
    by = heuristic if found["heuristic"] else "moved only by crowded boards"
    return [f"flow {found['flow']} is {by}", f"pinned: {pins}", f"labels: {labels}"]


def _flows(args: argparse.Namespace) -> int:
    found = ask_fleet(args, "fleet.flows", {"conditions": True})
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    print("\n".join(flow_lines(found["flows"])) if found["flows"] else "no flows")
    return 0


def flow_lines(flows: Mapping[str, Any]) -> list[str]:
    """The flows of a fleet for a terminal: what runs where stands below each flow, then what is not well."""
    from edgert.cli._control import table, wrapped

    names = sorted(flows)
    rows = [(name, str(short(flows[name]["plan"])), flows[name]["coordinator"]) for name in names]
    head, *lines = table(("flow", "plan", "coordinator"), rows, left=3)
    found = [f"{head}  state"]
    for name, line in zip(names, lines, strict=True):
        one, wide = flows[name], len(head) + 2
        found += wrapped(f"{line.ljust(wide)}{_states(one['boards'])}", wide)
        for board, operators in boards_with_operators(one.get("assignment", {})).items():
            found += wrapped(f"  {board}: {', '.join(operators)}")
    return [*found, *(part for line in not_well(flows) for part in wrapped(line))]


def not_well(flows: Mapping[str, Any]) -> list[str]:
    """A line for each part of a flow that is not well, the bad ones first."""
    parts = [(gateway, told) for one in flows.values() for gateway, told in sorted(one.get("conditions", {}).items())]
    parts.sort(key=lambda part: part[1]["level"] != "bad")
    return [f"{'!' if told['level'] == 'bad' else '?'} {gateway}: {told['text']}" for gateway, told in parts]


def _move(args: argparse.Namespace) -> int:
    found = ask_fleet(args, "fleet.move", {"flow": args.flow, "moves": {args.operator: args.gateway}})
    said = f"flow {found['flow']} runs by plan {short(found['plan'])}: {by_board(found['assignment'])}"
    said += f"; {moves.pause(found)}"
    print(json.dumps(found, indent=2) if args.json else said)
    return 0


def _rings(args: argparse.Namespace) -> int:
    from edgert.cli._control import table

    found = ask_fleet(args, "fleet.rings", {})
    if args.json:
        print(json.dumps(found))
        return 0
    boards = {name: one for name, one in sorted(found["boards"].items()) if "mean_cpu" in one}
    rows = [
        (name, *(f"{100 * part:.0f} %" for part in one["mean_cpu"].values()), _bars(one["cpu"], found["seconds"]))
        for name, one in boards.items()
    ]
    head = ("board", "10 s", "1 min", "3 min", "CPU from now to in 3 minutes")
    print("\n".join(table(head, rows)) if rows else "no board has told a prediction yet")
    return 0


def _bars(parts: Sequence[float], seconds: Sequence[float]) -> str:
    """The use of the cores over the next three minutes, a sign for six seconds."""
    each = [part for part, length in zip(parts, seconds, strict=True) for _ in range(round(length))]
    means = [sum(each[at : at + 6]) / 6 for at in range(0, len(each) - 5, 6)]
    return "".join(BARS[max(0, min(len(BARS) - 1, int(mean * len(BARS))))] for mean in means)


def _remove(args: argparse.Namespace) -> int:
    found = ask_fleet(args, "fleet.remove", {"flow": args.flow})
    print(json.dumps(found) if args.json else f"flow {found['flow']} is removed; its results still leave")
    for board, operators in found.get("lost", {}).items() if not args.json else ():
        print(f"lost with {board}: what {', '.join(operators)} held and had not sent")
    for board, operators in found.get("left", {}).items() if not args.json else ():
        print(f"{board}, which left the fleet, keeps its part ({', '.join(operators)}) until its agent runs again")
    return 0


def _forget(args: argparse.Namespace) -> int:
    found = ask_fleet(args, "fleet.forget", {"board": args.board, "force": args.force})
    if args.json:
        print(json.dumps(found))
        return 0
    print(f"{found['board']} votes no more; told: {', '.join(found['told']) or 'no other board is there'}")
    for flow, operators in found["lost"].items():
        print(f"flow {flow} lacks {', '.join(operators)}: edgert fleet remove {flow}, then deploy it again")
    return 0


def _states(boards: Mapping[str, str]) -> str:
    states = sorted(set(boards.values()))
    return states[0] if len(states) == 1 else ", ".join(f"{board} {state}" for board, state in sorted(boards.items()))
