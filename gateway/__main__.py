"""`edgert-gateway`: the gateway daemon."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from edgert import __version__
from edgert.core.command_line import Parser
from edgert.core.config import left_behind, load
from edgert.core.errors import EdgertError
from edgert.core.log import set_up
from edgert.core.settings.cautions import cautions
from edgert.core.settings.gateway import GatewaySettings
from edgert.mqtt.clients.credentials import others_may_read

log = logging.getLogger(__name__)

DEFAULT_CONFIG = Path("/etc/edgert/gateway.toml")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
KEPT_BYTES = 128 << 10
DATABASE = "gateway.db"
EPILOG = """\
Every setting is also an environment variable (EDGERT_SENSORS_HOST=...); `edgert config sample gateway` prints all.
exit status: 0 stopped by SIGTERM or SIGINT, 1 could not start or go on, 2 wrong arguments, 130 interrupted at start"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until a signal; returns the exit status."""
    parser = Parser(
        "edgert-gateway",
        description="Takes in MQTT sensor streams, runs flows, ships results to the central side.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, help=f"settings file (default: {DEFAULT_CONFIG} if it is there)")
    parser.add_argument("--version", action="version", version=f"edgert {__version__}")
    arguments = parser.parse_args(argv)
    path = arguments.config or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
    try:
        settings = load(GatewaySettings, path, os.environ)
        if why := left_behind(path, "gateway.data_dir", settings.gateway.data_dir, DATABASE):
            raise EdgertError(why)  # else an empty database would begin beside the one that has the board's results
        set_up(settings.log.level, env=os.environ)
        for caution in cautions(settings, others_may_read):
            log.warning("%s", caution)
        _give_back_memory()
        _serve(settings)
    except KeyboardInterrupt:  # before the daemon listens for it
        return 130
    except EdgertError as error:
        print(f"edgert-gateway: {error}", file=sys.stderr)
        return 1
    return 0


def _give_back_memory() -> None:
    """Has glibc return freed memory at once. By default it raises its thresholds when a large block is freed, and then
    keeps what a burst has used, in each thread's arena, for good (measured: 65 MB after a minute at 15,000 messages/s
    and QoS 1, and 56 to 60 so)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in every C library
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def _serve(settings: GatewaySettings) -> None:
    import uvloop

    from edgert.runtime.interpreter import Garbage
    from gateway.daemon import Daemon

    async def serve() -> None:
        daemon, fault = Daemon(settings), None
        try:
            await daemon.run(Garbage(daemon.clock.monotonic()))
        except EdgertError as error:
            fault = str(error)
        except Exception as error:
            log.exception("a fault of the gateway's own")
            fault = f"a fault of its own, see the log: {error!r}"
        _end(fault)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def _end(fault: str | None) -> NoReturn:
    """Without waiting for threads, as loop and interpreter would: what counts is written, and one may wait for a name
    server, or for a file on a server that is away."""
    if fault is not None:
        print(f"edgert-gateway: {fault}", file=sys.stderr)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0 if fault is None else 1)


if __name__ == "__main__":
    sys.exit(main())
