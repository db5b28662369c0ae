"""The parser of command lines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any


class Parser(argparse.ArgumentParser):
    """Says what is wrong where it stands: with the usage of the command at hand, and the nearest option.

    The beginning of an option's name is no option: a misspelt `--remov` would remove a flow."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False} | options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses as argparse does, except for unknown arguments: argparse hands that up to the parser of all
        commands."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown)}{self._either(unknown)}")
        return found, []

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
