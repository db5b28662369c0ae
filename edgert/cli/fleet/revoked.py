"""`edgert fleet crl`: brings the list of revoked certificates to the boards over MQTT."""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import threading
import time
from pathlib import Path
from typing import Any, Final

from edgert.cli import _broker
from edgert.cli._numbers import seconds
from edgert.core.errors import EdgertError
from edgert.core.ids import GATEWAY_NAME
from edgert.core.text.counted import counted

WAIT_S: Final = 30.0
QUIET_S: Final = 3.0
"""A gateway tells of its list within 2 s after it has connected."""
MOST_BOARDS: Final = 10_000


def add(actions: Any) -> None:
    """Adds the action."""
    text = (
        "publish the CA's list of revoked certificates to all boards of the fleet, and say which boards that are "
        "online have it; the broker keeps it for the others"
    )
    action = actions.add_parser("crl", help="bring the list of revoked certificates to the boards", description=text)
    action.set_defaults(act=_publish)
    action.add_argument("--ca", type=Path, required=True, metavar="DIR", help="folder of the CA")
    action.add_argument("--fleet", default="", metavar="NAME", help="the fleet's name (default: that of the CA)")
    action.add_argument(
        "--timeout-s", type=seconds, default=WAIT_S, metavar="S", help=f"longest wait for boards ({WAIT_S:.0f})"
    )
    action.add_argument("--json", action="store_true", help="as one JSON object")
    _broker.add(action)


def _publish(args: argparse.Namespace) -> int:
    from edgert.boards.authority import Authority
    from edgert.core.text.revoked_topic import list_digest, revoked_topic
    from edgert.mqtt.clients.control_plane import ControlConnection

    authority = Authority(args.ca)
    fleet, wanted = args.fleet or authority.fleet, list_digest(authority.crl_pem)
    logging.getLogger("edgert.mqtt").addHandler(logging.NullHandler())  # told as our own error
    told, changed = Told(), threading.Event()

    def heard(topic: str, payload: bytes, _: object) -> None:
        told.message_untrusted(topic.removeprefix(f"edgert/v1/{fleet}/"), payload)
        changed.set()

    connection = ControlConnection(
        _broker.connection(args), f"edgert-crl-{secrets.token_hex(4)}",
        subscriptions=[(f"edgert/v1/{fleet}/+/{below}", 1) for below in ("status", "crl/state")], on_message=heard,
    )  # fmt: skip
    connection.start()
    try:
        _connected(connection, args.timeout_s)
        if why := connection.deliver(revoked_topic(fleet), authority.crl_pem, retain=True):
            raise EdgertError(f"the list was not published: {why}")
        _wait(told, changed, wanted, args.timeout_s)
    finally:
        connection.stop()
    return _result(args, told, wanted)


def _connected(connection: Any, timeout_s: float) -> None:
    ends = time.monotonic() + timeout_s
    while not connection.connected:
        if connection.error or time.monotonic() > ends:
            raise EdgertError(f"{connection.error or f'broker {connection.address} does not answer'}; nothing was sent")
        time.sleep(0.05)


def _wait(told: Told, changed: threading.Event, wanted: str, timeout_s: float) -> None:
    """Until all boards that are online have the list, and no other has shown itself for a moment."""
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends:
        news = changed.wait(QUIET_S)
        changed.clear()
        if not news and not told.without(wanted):
            return


def _result(args: argparse.Namespace, told: Told, wanted: str) -> int:
    have, without = sorted(board for board, digest in told.lists.items() if digest == wanted), told.without(wanted)
    if args.json:
        print(json.dumps({"list": wanted, "have": have, "without": without}))
    else:
        print(f"the list {wanted} is on {counted(len(have), 'board')}; others get it when they connect")
        if without:
            print(f"online without it: {', '.join(without)} (edgert-revoked.service in their log)")
    return 1 if without else 0


class Told:
    """The boards, as the broker tells them."""

    def __init__(self) -> None:
        self.lists: dict[str, str] = {}
        """Board -> digest of its list."""
        self.online: dict[str, bool] = {}

    def message_untrusted(self, topic: str, payload: bytes) -> None:
        """`topic` without that of the fleet."""
        board, _, below = topic.partition("/")
        if not GATEWAY_NAME.fullmatch(board) or (board not in self.online and len(self.online) >= MOST_BOARDS):
            return
        try:
            plain = json.loads(payload) if payload else {}
        except (ValueError, RecursionError):
            plain = {}
        plain = plain if isinstance(plain, dict) else {}
        self.online.setdefault(board, False)
        if below == "status":
            self.online[board] = plain.get("state") == "online"
        elif isinstance(digest := plain.get("digest"), str):
            self.lists[board] = digest

    def without(self, wanted: str) -> list[str]:
        """Boards that are online and have another list. A gateway that tells of none has no use for one."""
        return sorted(board for board, digest in self.lists.items() if digest != wanted and self.online.get(board))
