"""`edgert fleet acl`: who may read and write what at the central broker, as Mosquitto's ACL file."""

from __future__ import annotations

import argparse
from typing import Any

from edgert.core.errors import EdgertError
from edgert.core.ids import GATEWAY_NAME
from edgert.mqtt.access import mosquitto_acl


def add(actions: Any) -> None:
    text = "print the ACL file for the central broker (Mosquitto): each gateway under its own name, see security.md"
    acl = actions.add_parser("acl", help=text, description=text)
    acl.set_defaults(act=_acl)
    acl.add_argument("gateways", nargs="*", metavar="GATEWAY", help="gateways; none: any user, under the user's name")
    acl.add_argument("--fleet", default="default", metavar="NAME", help="the fleet's name (default: default)")
    acl.add_argument("--central", default="central", metavar="USER", help="user of collector and jobs (central)")
    acl.add_argument(
        "--operator", action="append", default=[], metavar="USER", help="user who deploys flows; may come several times"
    )


def _acl(args: argparse.Namespace) -> int:
    for name in (args.fleet, *args.gateways, args.central, *args.operator):
        if not GATEWAY_NAME.fullmatch(name):
            raise EdgertError(f"expected a name like {GATEWAY_NAME.pattern}, got {name!r}")
    if twice := {args.central, *args.operator} & set(args.gateways):
        raise EdgertError(f"expected users of their own for collector and operators, got gateways: {', '.join(twice)}")
    print(mosquitto_acl(args.fleet, args.gateways, args.central, args.operator), end="")
    return 0
