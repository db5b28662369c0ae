"""The options by which a command finds the central broker."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgert.core.settings.connection import Connection


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--broker", default="127.0.0.1", metavar="HOST[:PORT]", help="the gateway's central broker (127.0.0.1:1883)"
    )
    parser.add_argument("--username", default="", metavar="NAME", help="user name at the broker")
    parser.add_argument("--password-file", default="", metavar="FILE", help="its first line is the password")
    parser.add_argument("--tls", action="store_true", help="speak TLS (default port 8883); the certificate is checked")
    parser.add_argument("--ca-file", default="", metavar="FILE", help="certificates that may have signed the broker's")
    parser.add_argument(
        "--cert-file", default="", metavar="FILE", help="our certificate, if the broker asks (`edgert fleet ca user`)"
    )
    parser.add_argument("--key-file", default="", metavar="FILE", help="private key of our certificate")


def connection(args: argparse.Namespace) -> Connection:
    """The connection that the options describe."""
    from edgert.core.settings.connection import Connection
    from edgert.mqtt.address import PORT, TLS_PORT, split_broker

    host, port = split_broker(args.broker, TLS_PORT if args.tls else PORT)
    return Connection(
        host=host, port=port, tls=args.tls, ca_file=args.ca_file, cert_file=args.cert_file, key_file=args.key_file,
        username=args.username, password_file=args.password_file,
    )  # fmt: skip


def seconds(text: str) -> float:
    """The value of an option that is a time, as argparse wants it."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text!r}")
    return value
