"""How the verbs that ask a running gateway find its control socket, and how they print tables."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgert.core.errors import EdgertError

if TYPE_CHECKING:
    from edgert.control.client import BlockingClient

CONFIG: Final = Path("/etc/edgert/gateway.toml")
AGENT_CONFIG: Final = Path("/etc/edgert/agent.toml")
WIDTH: Final = 80
"""Columns of a terminal."""
TIMEOUT_S: Final = 10.0
FLEET_S: Final = 180.0
"""A flow has a minute to come to a batch boundary, and boards time to answer."""


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which gateway is meant."""
    parser.add_argument(
        "--socket", metavar="PATH", help="the gateway's control socket; default: that of its settings, then /run/edgert"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"the gateway's settings (default: {CONFIG} if it is there)"
    )


def add_agent(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a question to this board's agent."""
    parser.add_argument("--socket", metavar="PATH", help="the agent's control socket; default: that of its settings")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"the agent's settings (default: {AGENT_CONFIG} if it is there)"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def connect(args: argparse.Namespace, timeout_s: float = TIMEOUT_S) -> BlockingClient:
    """A connection to the gateway that is meant. Raises `EdgertError` naming what was looked for."""
    from edgert.control.client import BlockingClient

    return BlockingClient(args.socket or _found(candidates(args.config)), timeout_s)


def ask(
    args: argparse.Namespace, verb: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = TIMEOUT_S
) -> Any:
    """The gateway's answer to a verb."""
    with connect(args, timeout_s) as client:
        return client.call(verb, arguments)


def ask_agent(
    verb: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = TIMEOUT_S, *,
    socket: str | None = None, config: Path | None = None,
) -> Any:  # fmt: skip
    """The answer of this board's agent to a verb. `socket`: None for that of its settings; `config`: its settings."""
    from edgert.control.client import call
    from edgert.core.config import load
    from edgert.core.settings.agent import AgentSettings, agent_socket

    if not socket:
        path = config or (AGENT_CONFIG if os.access(AGENT_CONFIG, os.R_OK) else None)
        socket = agent_socket(load(AgentSettings, path, os.environ), os.environ, os.geteuid() == 0)
    return call(socket, verb, arguments, timeout_s)


def add_action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Adds an action of `edgert fleet` that the agent answers."""
    action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    add_agent(action)
    return action


def ask_fleet(args: argparse.Namespace, verb: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """The agent's answer to such an action."""
    return ask_agent(verb, arguments, FLEET_S, socket=args.socket, config=args.config)


def candidates(config: Path | None) -> list[str]:
    """Where the socket may be, likeliest first: as the settings say, in the runtime folder of a service or of root, in
    this user's."""
    from edgert.core.config import load
    from edgert.core.settings.gateway import GatewaySettings, control_socket

    path = config or (CONFIG if os.access(CONFIG, os.R_OK) else None)
    settings = load(GatewaySettings, path, os.environ)
    if not settings.control.enabled:
        raise EdgertError(f"{path or 'the environment'}: control.enabled is false, so this gateway cannot be asked")
    paths = [control_socket(settings, os.environ, os.geteuid() == 0)]
    if config is None and not settings.control.socket:
        paths += [control_socket(GatewaySettings(), {}, root=True)]
        paths += [control_socket(GatewaySettings(), os.environ, root=False)]
    return list(dict.fromkeys(paths))


def _found(paths: Sequence[str]) -> str:
    for path in paths:
        if os.path.exists(path):
            return path
    raise EdgertError(
        f"no gateway's control socket is there; looked for {', '.join(paths)}. Is the gateway running, and may this "
        "user enter the folder? Otherwise say where with --socket PATH (its log names it: control socket), or --config"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table: the first `left` columns to the left, numbers to the right. A table that is wider than a
    terminal comes in blocks of columns, one below the other, each with the first column."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    blocks = [[0]]
    for column in range(1, len(widths)):
        if len(blocks[-1]) > 1 and sum(widths[at] + 2 for at in (*blocks[-1], column)) - 2 > WIDTH:
            blocks.append([0])
        blocks[-1].append(column)
    lines: list[str] = []
    for block in blocks:
        lines += [""] if lines else []
        for line in (head, *rows):
            cells = (line[at].ljust(widths[at]) if at < left else line[at].rjust(widths[at]) for at in block)
            lines.append("  ".join(cells).rstrip())
    return lines


def wrapped(line: str, indent: int = 4) -> list[str]:
    """A line in the width of a terminal; what does not fit comes below it, indented."""
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for limit, unit, name in ((1e-3, 1e-6, "µs"), (1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min")):
        if abs(seconds) < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 3600:,.1f} h"


def size(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def location(slot: int) -> str:
    """The location of an instance on its board, as text."""
    return "gateway" if slot < 0 else f"slot {slot}"


def boards_with_operators(assignment: Mapping[str, str]) -> dict[str, list[str]]:
    """Board -> the operators that run there."""
    boards: dict[str, list[str]] = {}
    for operator, gateway in assignment.items():
        boards.setdefault(gateway, []).append(operator)
    return boards


def by_board(assignment: Mapping[str, str]) -> str:
    """Boards, each with its operators."""
    boards = boards_with_operators(assignment)
    return "; ".join(f"{gateway}: {', '.join(operators)}" for gateway, operators in boards.items())
