"""`edgert config`: the settings of our programs as a sample file, as docs, and checked."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from edgert.core import config
from edgert.core.settings.cautions import cautions
from edgert.core.settings.programs import PROGRAMS
from edgert.mqtt.clients.credentials import others_may_read

HELP = "show and check settings: sample file, docs, check of a file and the environment"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, text in (
        ("sample", "print a documented TOML file with every setting at its default"),
        ("docs", "print every setting as Markdown tables"),
        ("check", "check a file together with the environment; name every error"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.set_defaults(action=name)
        action.add_argument("program", nargs="?", choices=tuple(PROGRAMS), default="gateway", help="default: gateway")
        if name == "check":
            action.add_argument(
                "--config", "--file", type=Path, metavar="FILE",
                help="the TOML file; without it only the environment is checked",
            )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    settings = PROGRAMS[args.program]
    if args.action == "sample":
        print(config.sample(settings), end="")
    elif args.action == "docs":
        print(config.document(settings), end="")
    else:
        loaded = config.load(settings, args.config, os.environ)
        for caution in cautions(loaded, others_may_read):
            print(f"mind: {caution}", file=sys.stderr)
        print(f"{args.config or 'environment'}: good settings of the {args.program}")
    return 0
