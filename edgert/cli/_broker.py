"""The options by which a command finds the central broker."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from edgert.core.errors import DocumentError, EdgertError

if TYPE_CHECKING:
    from edgert.core.settings.connection import Connection


OPTIONS: Final = (
    ("username", "--username"), ("password_file", "--password-file"), ("ca_file", "--ca-file"),
    ("cert_file", "--cert-file"), ("key_file", "--key-file"), ("tls = true", "--tls"),
    ("or tls = false", "or leave out --tls"), ("and host to the name", "and --broker to the name"),
)  # fmt: skip
"""How hints speak of a setting -> its option."""
NEEDS: Final = {"ca_file": "tls", "cert_file": "tls", "key_file": "cert_file", "password_file": "username"}
"""Option -> the one without which it has no effect."""


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
    for name, needed in NEEDS.items():
        if name in given and not getattr(found, needed):
            option, other = (f"--{text.replace('_', '-')}" for text in (name, needed))
            raise EdgertError(f"{option}: expected {other} beside it, got {option} alone")
    if settings is not None and not args.broker:
        return found
    host, port = split_broker(args.broker or found.host, TLS_PORT if found.tls else PORT)
    return replace(found, host=host, port=port)


@contextmanager
def errors_name_options(args: argparse.Namespace) -> Iterator[None]:
    """The hints of a connection name its settings. Where those came from options, these are named instead."""
    try:
        yield
    except DocumentError:
        raise
    except EdgertError as error:
        text = str(error)
        for setting, option in () if "broker" not in args or getattr(args, "config", None) else OPTIONS:
            text = re.sub(rf"(?<![\w/.-])(?:central\.)?{setting}\b", option, text)
        raise EdgertError(text) from error
