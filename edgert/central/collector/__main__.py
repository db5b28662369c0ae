"""The command `edgert-collector`: what it is called with, before anything heavy is imported."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import edgert
from edgert.core.command_line import Parser
from edgert.install_hint import missing


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command line, which win over file and environment."""
    parser.add_argument("--config", metavar="FILE", help="settings (TOML); see `edgert config sample collector`")
    parser.add_argument("--root", metavar="FOLDER", help="folder or URI of the tables")
    parser.add_argument("--fleet", metavar="NAME", help="fleet whose results are taken")
    parser.add_argument("--broker", metavar="HOST[:PORT]", help="MQTT broker between gateways and central side")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a collector until SIGTERM or SIGINT; returns the exit status."""
    parser = Parser(prog="edgert-collector", description="Append results of gateways to landing tables (Delta).")
    parser.add_argument("--version", action="version", version=f"edgert {edgert.__version__}")
    arguments(parser)
    options = parser.parse_args(argv)
    try:
        from edgert.central.collector.main import collect
    except ModuleNotFoundError as error:
        if (told := missing(error)) is None:
            raise
        print(f"edgert-collector: {told}", file=sys.stderr)
        return 1
    return collect(options)


if __name__ == "__main__":
    sys.exit(main())
