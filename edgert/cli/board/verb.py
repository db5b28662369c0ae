"""`edgert board`: the two slots of a board made from an image: update, confirm, history."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from edgert.boards import reset
from edgert.boards.requests import UpdateRequest
from edgert.boards.slots import Pending, Trial, faults, lost
from edgert.cli._control import add_socket, ask
from edgert.cli.board import drain, install, requests, slots
from edgert.core.errors import EdgertError

HELP = "the two slots of a board that was made from an image: update, history"
WITHIN_S: Final = 600.0
STEADY_S: Final = 20.0
POLL_S: Final = 2.0
WOULD_BE_LOST: Final = (
    "flows, their results, certificates, keys, network and all other settings of this board would be removed."
)


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
    text = "carry out the update that was asked for over MQTT (edgert fleet update); the board does it by itself"
    requested = actions.add_parser("requested", help=text, description=text)
    requested.set_defaults(act=_requested)
    add_socket(requested)
    text = "store the list of revoked certificates that came over MQTT (edgert fleet crl); the board does it by itself"
    taken = actions.add_parser("revoked", help=text, description=text)
    taken.set_defaults(act=_revoked)
    text = "factory reset: removes all data of the board, which restarts as from a newly written card"
    again = actions.add_parser("reset", help=text, description=text)
    again.add_argument("--yes", action="store_true", help="do it; without this option the command says what is lost")
    again.set_defaults(act=_reset)
    add_socket(again)
    text = "the slot that runs, its version, and what became of updates"
    status = actions.add_parser("status", help=text, description=text)
    status.add_argument("--json", action="store_true", help="as one JSON object")
    status.set_defaults(act=_status)


def run(args: argparse.Namespace) -> int:
    return int(args.act(args))


def _update(args: argparse.Namespace) -> int:
    request = UpdateRequest("", args.bundle)
    try:
        version = install.install(request, lambda: _gateway(args))
    except install.NotInstalled as error:
        slots.record(error.event, version=error.version, bundle=args.bundle, why=str(error))
        requests.tell_last()
        raise
    print(f"version {version} is in slot {install.OTHER[slots.slot()]}", file=sys.stderr)
    if not args.no_restart:
        slots.restart()
    return 0


def _requested(args: argparse.Namespace) -> int:
    install.requested(lambda: _gateway(args))
    return 0


def _revoked(args: argparse.Namespace) -> int:
    from edgert.cli.board import revoked  # with the library of certificates, which is large

    print(revoked.take(), file=sys.stderr)
    return 0


def _reset(args: argparse.Namespace) -> int:
    slot, update, status = slots.slot(), slots.pending(), _gateway(args)
    if update:  # without its note the new slot would stay, however it is
        raise EdgertError(f"version {update.version} in slot {update.target} is not decided: see edgert board status")
    if not args.yes:
        raise EdgertError(f"{WOULD_BE_LOST} {_of_flows(status)} Slot {slot} stays. Do it: edgert board reset --yes")
    reset.order()
    print("the board restarts for its factory reset", file=sys.stderr)
    slots.restart()
    return 0


def _of_flows(status: Mapping[str, Any] | str) -> str:
    if isinstance(status, str):
        return f"How many results were not delivered is not known: {status}."
    rows = status.get("central", {}).get("outbox_rows", 0)
    return f"Flows: {len(status.get('flows', ()))}; rows of results that were not delivered: {rows:,}."


def _confirm(args: argparse.Namespace) -> int:
    slot, update = slots.slot(), slots.pending()
    if update is not None and slot == update.target:
        return _on_trial(args, update)
    if update is not None:
        _did_not_run(slot, update)
    _give_back(slot)
    requests.tell_last()
    if requests.accepted():
        requests.start_unit()
    drain.fill()
    return 0


def _did_not_run(slot: str, update: Pending) -> None:
    """Slot `slot` was started, and not that of the update."""
    asked = requests.accepted()
    if update.written:
        why = f"slot {update.target} did not come up; slot {slot} runs"
        _record("rolled back", update, why)
        requests.done()  # if the power failed just when it was installed
    else:
        why = f"it was cut off while slot {update.target} was written; slot {slot} runs"
        _record("interrupted" if asked and asked[0].id == update.request else "failed", update, why)
    print(f"version {update.version}: {why}", file=sys.stderr)
    slots.forget()


def _on_trial(args: argparse.Namespace, update: Pending) -> int:
    print(f"version {update.version} in slot {update.target} is on trial", file=sys.stderr)
    requests.done()  # if the power failed just when it was installed
    requests.tell_last()
    if found := _try(args, update):
        _go_back(update, found)
        return 0
    slots.mark("good")
    _record("confirmed", update, slot=update.target)
    slots.forget()
    requests.tell_last()
    print(f"version {update.version} in slot {update.target} is confirmed", file=sys.stderr)
    drain.fill()
    return 0


def _record(event: str, update: Pending, why: str = "", **details: Any) -> None:
    install.record(event, UpdateRequest(update.request, update.url), update.version, why, **details)


def _give_back(slot: str) -> None:
    """A slot that was confirmed earlier: nothing is gained by a restart if that fails."""
    try:
        slots.mark("good")
    except EdgertError as error:
        print(f"slot {slot}: its attempts could not be given back: {error}", file=sys.stderr)


def _try(args: argparse.Namespace, update: Pending) -> list[str]:
    """Until the new slot is good; returns the faults of a bad one."""
    trial, began = Trial(args.within, args.steady), time.monotonic()
    said: list[str] = []
    while True:
        units = slots.units()
        found = faults(_gateway(args), units, update.before, update.flows)
        if found != said:
            print("; ".join(found) or "no fault now", file=sys.stderr, flush=True)
            said = found
        verdict = trial.see(time.monotonic() - began, found, bool(lost(units, update.before)))
        if verdict is not None:
            return found if verdict == "bad" else []
        time.sleep(POLL_S)


def _go_back(update: Pending, found: list[str]) -> None:
    why = "; ".join(found)
    _record("rolled back", update, why, log=slots.end_of_log(slots.SERVICES))
    slots.mark("bad")
    slots.forget()
    requests.tell_last()
    print(f"version {update.version} goes back to slot {update.source}: {why}", file=sys.stderr, flush=True)
    slots.restart()


def _gateway(args: argparse.Namespace) -> Mapping[str, Any] | str:
    """The gateway's status, or why there is none."""
    try:
        status: Mapping[str, Any] = ask(args, "status")
    except EdgertError as error:
        return str(error)
    return status


def _status(args: argparse.Namespace) -> int:
    update, events = slots.pending(), slots.history()
    found = {
        "slot": slots.slot(),
        "version": slots.about().get("version", ""),
        "pending": update and update.version,
    }
    if args.json:
        print(json.dumps({**found, "history": events}, indent=1))
        return 0
    print(f"slot {found['slot']}, version {found['version'] or 'unknown'}")
    if update:
        print(f"  {update.state(str(found['slot']))}")
    for event in events:
        detail = event.get("why") or (f"slot {event['slot']}" if "slot" in event else "")
        what = event.get("version") or event.get("bundle", "")
        print(f"  {event['time']}  {event['event']}  {what}  {detail}".rstrip())
    return 0
