"""The options by which a command finds the central broker."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgert.core.settings.connection import Connection


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--broker", default="", metavar="HOST[:PORT]", help="the gateway's central broker (127.0.0.1:1883)"
    )
    parser.add_argument("--username", default="", metavar="NAME", help="user name at the broker")
    parser.add_argument("--password-file", default="", metavar="FILE", help="its first line is the password")
    parser.add_argument("--tls", action="store_true", help="speak TLS (default port 8883); the certificate is checked")
    parser.add_argument("--ca-file", default="", metavar="FILE", help="certificates that may have signed the broker's")
    parser.add_argument(
        "--cert-file", default="", metavar="FILE", help="our certificate, if the broker asks (`edgert fleet ca user`)"
    )
    parser.add_argument("--key-file", default="", metavar="FILE", help="private key of our certificate")


def connection(args: argparse.Namespace, settings: Connection | None = None) -> Connection:
    """The connection that the options describe, which win over `settings`."""
    from edgert.core.settings.connection import Connection
    from edgert.mqtt.address import PORT, TLS_PORT, split_broker

    names = ("tls", "ca_file", "cert_file", "key_file", "username", "password_file")
    given = {name: value for name in names if (value := getattr(args, name))}
    found = replace(settings or Connection(), **given)
    if settings is not None and not args.broker:
        return found
    host, port = split_broker(args.broker or found.host, TLS_PORT if found.tls else PORT)
    return replace(found, host=host, port=port)


def seconds(text: str) -> float:
    """The value of an option that is a time, as argparse wants it."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text!r}")
    return value
