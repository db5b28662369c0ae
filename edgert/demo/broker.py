"""`python -m edgert.demo.broker`: an embedded MQTT 3.1.1 broker on loopback. It keeps nothing over a restart."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

from edgert.core import log as logs

HOST = "127.0.0.1"
READY = "listening"
"""The line that says that it takes connections."""


async def serve(port: int) -> None:
    """Serves until SIGTERM or SIGINT."""
    from amqtt.broker import Broker

    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"{HOST}:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await broker.start()
    print(READY, flush=True)
    await stopping.wait()
    await broker.shutdown()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m edgert.demo.broker", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args(arguments)
    # Its warnings are about clients that go away, as ours do at every stop.
    logs.set_up("error")
    asyncio.run(serve(args.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
