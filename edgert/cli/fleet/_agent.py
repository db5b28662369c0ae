"""The actions of `edgert fleet` that this board's agent answers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from edgert.cli._control import add_agent, ask_agent

TIMEOUT_S: Final = 180.0
"""A flow has a minute to come to a batch boundary, and boards time to answer."""


def add_action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Adds an action, with the options that say which agent is asked."""
    action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    add_agent(action)
    return action


def call(args: argparse.Namespace, verb: str, arguments: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """The agent's answer."""
    return ask_agent(verb, arguments, TIMEOUT_S, socket=args.socket, config=args.config)
