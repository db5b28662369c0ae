"""OS scheduling alone: for a board whose engine is not ours, or without the rest of the agent.

    python -m agent.osched --gateway /run/edgert/control.sock

The file of `--config` has one section, `[sched]`. SIGTERM and Ctrl-C put every thread back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.osched.component import OsScheduling
from edgert.control.server import ControlServer
from edgert.core.config import load, section
from edgert.core.errors import EdgertError
from edgert.core.settings.agent import Sched
from edgert.core.settings.folders import data_folder, runtime_folder


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of OS scheduling alone."""

    sched: Sched = section(Sched)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal; returns the exit status."""
    root = os.geteuid() == 0
    run_in = runtime_folder(os.environ, root) or data_folder(os.environ, root)
    parser = argparse.ArgumentParser("agent.osched", description="Have the Linux scheduler serve the flows of a board.")
    parser.add_argument("--config", type=Path, help="TOML with a section [sched]")
    parser.add_argument(
        "--gateway", default=f"{run_in}/control.sock", help="the gateway's socket (default: %(default)s)"
    )
    parser.add_argument("--socket", default=f"{run_in}/agent.sock", help="socket to serve (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=Path(data_folder(os.environ, root)), help="default: %(default)s")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        settings = load(Settings, given.config, os.environ)
        return asyncio.run(_serve(OsScheduling(settings.sched, given.gateway, given.data), given.socket))
    except (EdgertError, OSError) as error:
        print(f"agent.osched: {error}", file=sys.stderr)
        return 1


async def _serve(part: OsScheduling, socket: str) -> int:
    server = ControlServer(socket, part.handlers)
    await server.start()  # before anything is changed: its lock keeps a second agent from the same journal
    loop, running = asyncio.get_running_loop(), asyncio.ensure_future(part.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
