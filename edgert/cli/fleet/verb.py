"""`edgert fleet`: the boards of the fleet as this board's agent knows them, and the fleet's keys."""

from __future__ import annotations

import argparse
import base64
import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from edgert.cli.fleet import acl, boards, flows
from edgert.core.errors import EdgertError
from edgert.core.text_files import ENCODING

HELP = "members of the fleet with their distances, the fleet's keys, and rules for its broker"
CONFIG: Final = Path("/etc/edgert/agent.toml")
KEY_BYTES: Final = 32
TIMEOUT_S: Final = 180.0
"""A flow has a minute to come to a batch boundary, and boards time to answer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, text, act in (
        ("status", "members, their state, coordinates, estimated and measured round-trip times", _status),
        ("leave", "this board's agent says goodbye to the fleet and ends", _leave),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.set_defaults(act=act)
        _add_socket(action)
    flows.add(actions, _add_socket, _call)
    acl.add(actions)
    boards.add(actions)
    text = "make the file with the fleet's keys, or rotate a key in it; copy the file to every board"
    key = actions.add_parser("key", help=text, description=text, epilog=ROTATION)
    key.set_defaults(act=_key)
    key.add_argument("file", type=Path, help="the key file (mode 0600)")
    change = key.add_mutually_exclusive_group()
    change.add_argument("--add", action="store_true", help="append a new key: it opens packets, but does not seal yet")
    change.add_argument("--use", action="store_true", help="let the last key seal")
    change.add_argument("--drop", action="store_true", help="remove every key but the sealing one")


def _add_socket(action: argparse.ArgumentParser) -> None:
    action.add_argument("--socket", metavar="PATH", help="the agent's control socket; default: that of its settings")
    action.add_argument(
        "--config", type=Path, metavar="FILE", help=f"the agent's settings (default: {CONFIG} if it is there)"
    )
    action.add_argument("--json", action="store_true", help="as one JSON object")


ROTATION: Final = (
    "To rotate while all boards run: --add on one board and copy the file to all; when all have it, --use and copy; "
    "when all have it, --drop and copy. Agents read the file again by themselves within seconds."
)


def run(args: argparse.Namespace) -> int:
    status: int = args.act(args)
    return status


def _call(args: argparse.Namespace, verb: str, arguments: Mapping[str, Any] = MappingProxyType({})) -> Any:
    from edgert.control.client import call
    from edgert.core.agent_settings import AgentSettings, agent_socket
    from edgert.core.config import load

    path = args.config or (CONFIG if os.access(CONFIG, os.R_OK) else None)
    settings = load(AgentSettings, path, os.environ)
    socket = args.socket or agent_socket(settings, os.environ, os.geteuid() == 0)
    return call(socket, verb, arguments, TIMEOUT_S)


def _status(args: argparse.Namespace) -> int:
    found = _call(args, "fleet.status")
    print(json.dumps(found, indent=2) if args.json else "\n".join(lines(found)))
    return 0


def _leave(args: argparse.Namespace) -> int:
    found = _call(args, "fleet.leave")
    print(json.dumps(found) if args.json else "the agent has left the fleet")
    return 0


def lines(found: Mapping[str, Any]) -> list[str]:
    """The status of a fleet for a terminal."""
    from edgert.cli._control import duration, table

    head = ("gateway", "state", "for", "address", "cores", "speed", "load", "coordinate", "estimated", "measured")
    rows = [_row(member, duration) for member in found["members"]]
    alive = sum(member["state"] == "alive" for member in found["members"])
    gateway, counters = found["local_gateway"], found["counters"]
    drops = ", ".join(f"{count} {reason}" for reason, count in sorted(counters["drops"].items())) or "none"
    away = "" if gateway["connected"] else f"; its gateway does not answer: {gateway['error']}"
    return [
        f"fleet {found['fleet']}, seen by {found['gateway']}: {alive} of {len(found['members'])} alive{away}",
        "",
        *table(head, rows, left=4),
        "",
        f"packets dropped: {drops}; own health: {found['health']} (0 is best)",
    ]


def _row(member: Mapping[str, Any], duration: Any) -> Sequence[str]:
    host, port = member["address"]
    board, load = member["board"], member["load"]
    coordinate = " ".join(f"{number:.1f}" for number in member["coordinate"][:3]) or "-"
    times = ["-" if member[name] is None else f"{member[name]:.2f} ms" for name in ("estimated_ms", "measured_ms")]
    name = member["gateway"] + (" *" if member["self"] else "")
    facts = [_text(board.get("cores")), _text(board.get("speed")), _text(load.get("load"))]
    return name, member["state"], duration(member["since_s"]), f"{host}:{port}", *facts, coordinate, *times


def _text(value: object) -> str:
    """A number from another board, as a cell of the table."""
    return f"{value:g}" if isinstance(value, int | float) else "-"


def _key(args: argparse.Namespace) -> int:
    new = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    if not (args.add or args.use or args.drop):
        _write(args.file, [new], os.O_EXCL)
        print(f"{args.file}: a new fleet key; copy the file to every board of the fleet", file=sys.stderr)
        return 0
    try:
        keys = [
            line
            for line in args.file.read_text(encoding=ENCODING).splitlines()
            if line.strip() and not line.startswith("#")
        ]
    except OSError as error:
        raise EdgertError(f"{args.file}: expected a key file: {error.strerror or error}") from error
    if not keys:
        raise EdgertError(f"{args.file}: expected at least one key, got none")
    if args.add:
        keys = [*keys, new]
    elif args.use:
        keys = [keys[-1], *keys[:-1]]
    else:
        keys = keys[:1]
    temporary = args.file.with_name(args.file.name + ".new")
    temporary.unlink(missing_ok=True)
    _write(temporary, keys, os.O_EXCL)
    temporary.replace(args.file)
    print(f"{args.file}: {len(keys)} keys; copy the file to every board of the fleet", file=sys.stderr)
    return 0


def _write(path: Path, keys: Sequence[str], flags: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("".join(f"{key}\n" for key in keys))
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise EdgertError(f"{path}: there is a file already; to rotate its key: --add, --use, --drop") from None
    except OSError as error:
        raise EdgertError(f"{path}: the key file cannot be written: {error.strerror or error}") from error
