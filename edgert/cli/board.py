"""`edgert board`: the two slots of a board made from an image: update, confirm, history."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from edgert.boards.slots import Pending, Trial, bad_parts, faults, hopeless, lost
from edgert.cli import _slots
from edgert.cli._control import add_socket, ask
from edgert.core.errors import EdgertError

HELP = "the two slots of a board that was made from an image: update, history"
WITHIN_S: Final = 600.0
STEADY_S: Final = 20.0
POLL_S: Final = 2.0
OTHER: Final = {"A": "B", "B": "A"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    text = (
        "write a signed bundle to the slot that does not run and start it; the board goes back by itself if it is worse"
    )
    update = actions.add_parser("update", help=text, description=text)
    update.add_argument("bundle", metavar="FILE|URL", help="made by `make bundle`; of a URL what differs is fetched")
    update.add_argument("--no-restart", action="store_true", help="the new slot runs from the next start on")
    update.set_defaults(act=_update)
    add_socket(update)
    text = "confirm the slot that runs, or go back to the other; the board does it at each start"
    confirm = actions.add_parser("confirm", help=text, description=text)
    for name, default, about in (
        ("--within", WITHIN_S, "how long a new slot may take to be as well as the old one"),
        ("--steady", STEADY_S, "how long it must be well without a break"),
    ):
        confirm.add_argument(name, type=float, default=default, metavar="S", help=f"{about} (default: {default:.0f} s)")
    confirm.set_defaults(act=_confirm)
    add_socket(confirm)
    text = "the slot that runs, its version, and what became of updates"
    status = actions.add_parser("status", help=text, description=text)
    status.add_argument("--json", action="store_true", help="as one JSON object")
    status.set_defaults(act=_status)


def run(args: argparse.Namespace) -> int:
    return int(args.act(args))


def _update(args: argparse.Namespace) -> int:
    slot = _slots.slot()
    if os.geteuid():
        raise EdgertError("expected root: a slot is written")
    if not (image := _slots.about()).get("updates"):
        raise EdgertError(
            f"board {image.get('board', 'unknown')} always starts slot A: update it by writing its card anew"
        )
    if waiting := _slots.pending():
        raise EdgertError(
            f"version {waiting.version} in slot {waiting.target} is not confirmed yet; see: edgert board status"
        )
    event, version = "refused", ""
    try:
        version = _slots.bundle_version(args.bundle)
        event, status = "failed", _gateway(args)
        before = [unit.name for unit in _slots.units() if hopeless(unit)]
        before += [] if isinstance(status, str) else bad_parts(status)
        _slots.note(Pending(slot, OTHER[slot], version, tuple(before)))
        _slots.install(args.bundle)
    except EdgertError as error:
        _slots.forget()
        _slots.record(event, version=version, bundle=args.bundle, why=str(error))
        raise
    _slots.record("installed", version=version, slot=OTHER[slot], before=image.get("version", ""))
    print(f"version {version} is in slot {OTHER[slot]}", file=sys.stderr)
    if not args.no_restart:
        _slots.restart()
    return 0


def _confirm(args: argparse.Namespace) -> int:
    slot, update = _slots.slot(), _slots.pending()
    if update is None or slot != update.target:
        if update is not None:
            why = f"slot {update.target} did not come up, or was cut off while it was written; slot {slot} runs"
            _slots.record("rolled back", version=update.version, why=why)
            print(f"version {update.version}: {why}", file=sys.stderr)
            _slots.forget()
        _give_back(slot)
        return 0
    print(f"version {update.version} in slot {slot} is on trial", file=sys.stderr)
    found = _try(args, update)
    if found:
        _go_back(update, found)
    else:
        _slots.mark("good")
        _slots.record("confirmed", version=update.version, slot=slot)
        _slots.forget()
        print(f"version {update.version} in slot {slot} is confirmed", file=sys.stderr)
    return 0


def _give_back(slot: str) -> None:
    """A slot that was confirmed earlier: nothing is gained by a restart if that fails."""
    try:
        _slots.mark("good")
    except EdgertError as error:
        print(f"slot {slot}: its attempts could not be given back: {error}", file=sys.stderr)


def _try(args: argparse.Namespace, update: Pending) -> list[str]:
    """Until the new slot is good; returns the faults of a bad one."""
    trial, began = Trial(args.within, args.steady), time.monotonic()
    said: list[str] = []
    while True:
        units = _slots.units()
        found = faults(_gateway(args), units, update.before)
        if found != said:
            print("; ".join(found) or "no fault now", file=sys.stderr, flush=True)
            said = found
        verdict = trial.see(time.monotonic() - began, found, bool(lost(units, update.before)))
        if verdict is not None:
            return found if verdict == "bad" else []
        time.sleep(POLL_S)


def _go_back(update: Pending, found: list[str]) -> None:
    why = "; ".join(found)
    _slots.record("rolled back", version=update.version, why=why, log=_slots.last_words(_slots.SERVICES))
    _slots.mark("bad")
    _slots.forget()
    print(f"version {update.version} goes back to slot {update.source}: {why}", file=sys.stderr, flush=True)
    _slots.restart()


def _gateway(args: argparse.Namespace) -> Mapping[str, Any] | str:
    """The gateway's status, or why there is none."""
    try:
        status: Mapping[str, Any] = ask(args, "status")
    except EdgertError as error:
        return str(error)
    return status


def _status(args: argparse.Namespace) -> int:
    update, events = _slots.pending(), [json.loads(line) for line in _slots.history_lines()]
    found = {
        "slot": _slots.slot(),
        "version": _slots.about().get("version", ""),
        "pending": update and update.version,
    }
    if args.json:
        print(json.dumps({**found, "history": events}, indent=1))
        return 0
    print(f"slot {found['slot']}, version {found['version'] or 'unknown'}")
    if update:
        print(f"  on trial: version {update.version} in slot {update.target}")
    for event in events:
        detail = event.get("why") or (f"slot {event['slot']}" if "slot" in event else "")
        what = event.get("version") or event.get("bundle", "")
        print(f"  {event['time']}  {event['event']}  {what}  {detail}".rstrip())
    return 0
