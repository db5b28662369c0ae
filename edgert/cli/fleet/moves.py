"""`edgert fleet moves | drain | fill`: what was moved in the fleet, and boards that are emptied for a while."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from edgert.cli._control import add_action, ask_fleet, wrapped
from edgert.core.text.counted import counted


def add(actions: Any) -> None:
    """Adds the actions."""
    text = "moves of operators, whoever asked for them, and those that found no board: reason, pause and cost"
    add_action(actions, "moves", text).set_defaults(act=_moves)
    for verb, text in (
        ("drain", "move the operators of a board to the others and keep it empty, for an update or a repair"),
        ("fill", "end a drain: what it moved away comes back"),
    ):
        one = add_action(actions, verb, text)
        one.add_argument("board")
        one.set_defaults(act=lambda args, verb=verb: _drain(args, verb))


def _moves(args: argparse.Namespace) -> int:
    found = ask_fleet(args, "fleet.moves", {})
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    print("\n".join(told(found)))
    return 0


def told(found: Mapping[str, Any]) -> list[str]:
    """The moves of a fleet for a terminal; and the boards whose moves are not known, as they do not answer."""
    silent = ", ".join(found.get("silent", ()))
    lines = [line for move in found["moves"] for line in wrapped(_line(move))] or ["no moves"]
    return [*lines, *(wrapped(f"not asked, as they do not answer: {silent}") if silent else ())]


def _line(move: Mapping[str, Any]) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(move["at"]))
    flow = f"{move['flow']}/" if move["by"] == "board" and "pause_s" not in move else ""
    cost = f"; its flow {pause(move)[3:]}" if "pause_s" in move else ""
    return f"{at}  {move['from']}: {flow}{move['reason']}{cost}"


def pause(made: Mapping[str, Any]) -> str:
    """Tells how long a flow stood still for a change of its plan, and what that cost."""
    said = f"it stood still for {1e3 * made['pause_s']:.0f} ms"
    if "paused_bytes" not in made:
        return said
    ahead, paused = (f"{made[name] / 1e3:,.0f} kB" for name in ("ahead_bytes", "paused_bytes"))
    rows = counted(made["rows_delayed"], "row")
    return f"{said} while {rows} waited; {ahead} of state were sent before that, {paused} in it"


def _drain(args: argparse.Namespace, verb: str) -> int:
    found = ask_fleet(args, f"fleet.{verb}", {"board": args.board})
    print(json.dumps(found, indent=2) if args.json else "\n".join(lines(found, verb)))
    return 1 if found["stays"] else 0


def lines(found: Mapping[str, Any], verb: str) -> Iterator[str]:
    """The answer for a terminal."""
    board, drained = found["board"], verb == "drain"
    yield (
        f"{board} takes no operators until: edgert fleet fill {board}" if drained else f"{board} takes operators again"
    )
    for flow, moves in found["moved"].items():
        if flow not in found["stays"]:
            told = ", ".join(f"{operator} to {to}" if drained else operator for operator, to in moves.items())
            yield f"flow {flow}: {told}" + ("" if drained else f" to {board}")
    for flow, why in found["stays"].items():
        yield f"flow {flow} stays: {why}"
    if found["moved"]:
        yield f"a flow stood still for at most {1e3 * found['pause_s']:.0f} ms"
