"""The `edgert` command. Its verbs are the other modules of this package: to add one, add a file.

A verb that needs several files is a folder, in which `verb.py` is the module of the verb.

A verb module has `HELP: str` (one line), `add_arguments(parser)` and `run(args) -> int` (the exit status). What is
heavy to import, it imports in `run`, so that `edgert --help` answers at once and a board loads only what it uses.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from typing import Final, Protocol, cast

import edgert
import edgert.cli
from edgert.core.command_line import Parser, status_of
from edgert.core.errors import EdgertError
from edgert.install_hint import missing

EXIT_STATUS: Final = """\
exit status:
  0    done, and all is well
  1    it could not be done, or what was checked is not well; standard error says why
  2    the command line is wrong
  130  ended by Ctrl-C
"""


class Verb(Protocol):
    """The interface of a module of `edgert.cli`."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def verbs() -> dict[str, Verb]:
    """Name -> module of every verb, by name. A name with a leading underscore is no verb."""
    found = sorted(pkgutil.iter_modules(edgert.cli.__path__), key=lambda module: module.name)
    return {
        m.name.replace("_", "-"): cast(
            Verb, importlib.import_module(f"edgert.cli.{m.name}{'.verb' if m.ispkg else ''}")
        )
        for m in found
        if m.name != "main" and not m.name.startswith("_")
    }


def build_parser() -> argparse.ArgumentParser:
    """The command line with every verb that is there."""
    parser = Parser(
        prog="edgert",
        description="Sensor streams through operator graphs at the edge into Spark tables.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"edgert {edgert.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, verb in verbs().items():
        child = commands.add_parser(name, help=verb.HELP, description=verb.HELP)
        child.set_defaults(verb=verb)
        verb.add_arguments(child)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. `arguments` default to those of the process."""
    args = build_parser().parse_args(arguments)
    verb = cast(Verb, args.verb)
    try:
        return status_of(lambda: verb.run(args))
    except EdgertError as error:
        print(f"edgert: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (told := missing(error)) is None:
            raise
        print(f"edgert: {told}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
