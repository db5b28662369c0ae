"""The parser of command lines, and the door to a standard output whose reader may leave early."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any


class Parser(argparse.ArgumentParser):
    """Says what is wrong where it stands: with the usage of the command at hand, and the nearest option or command.

    The beginning of an option's name is no option: a misspelt `--remov` would remove a flow."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False} | options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses as argparse does, except for unknown arguments: argparse hands that up to the parser of all
        commands."""
        args = sys.argv[1:] if args is None else args
        if args and (place := self._belongs_behind(args[0].partition("=")[0])):
            self.error(f"{args[0]}: expected behind the whole command, such as: {place}")
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown)}{self._either(unknown)}")
        return found, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Names the nearest command beside all commands."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = get_close_matches(str(value), map(str, action.choices or ()), 1)
            if not near:
                raise
            raise argparse.ArgumentError(action, f"{error.message} (did you mean {near[0]}?)") from None

    def _belongs_behind(self, option: str) -> str:
        """The beginning of a command that takes an option which stands before the command, where this parser has no
        such option; empty if there is none."""
        if not option.startswith("-") or option in self._option_string_actions:
            return ""
        return next(
            (f"{parser.prog} {option}" for parser in self._below() if option in parser._option_string_actions), ""
        )

    def _below(self) -> Iterator[argparse.ArgumentParser]:
        """The parsers of all commands below this one."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield parser
                    if isinstance(parser, Parser):
                        yield from parser._below()

    def _either(self, unknown: Sequence[Any]) -> str:
        """The alternatives, for words that come behind an option that excludes them."""
        for group in self._mutually_exclusive_groups:
            actions = group._group_actions
            names = [action.option_strings[0] if action.option_strings else str(action.metavar) for action in actions]
            if not str(unknown[0]).startswith("-") and not all(action.option_strings for action in actions):
                return f" (expected either {' or '.join(names)})"
        return ""

    def _nearest(self, unknown: Sequence[Any]) -> str:
        known = [option for action in self._actions for option in action.option_strings]
        near = [
            match
            for text in unknown
            if str(text).startswith("-")
            for match in get_close_matches(str(text).partition("=")[0], known, 1)
        ]
        return f" (did you mean {', '.join(near)}?)" if near else ""


def status_of(command: Callable[[], int]) -> int:
    """Runs a command that prints; returns its exit status, 1 where the reader of its output left before the end (as
    `head` does). Python would print a traceback then, and complain once more while it ends."""
    try:
        status = command()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
