"""`edgert demo`: everything on one machine, from its sensors to the fleet table."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgert.cli._numbers import above_0, whole

HELP = "run the whole path on this machine: sensors, broker, gateway, collector, Spark, fleet table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", default="", metavar="HOST:PORT", help="a broker that runs; default: our own")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="replay this trace instead of reading sensors")
    parser.add_argument("--rate", type=above_0, default=100.0, metavar="N", help="messages/s of the trace (100)")
    parser.add_argument("--repeat", action="store_true", help="begin the trace again at its end")
    parser.add_argument(
        "--original-times", action="store_true", help="keep the trace's times; default: the time of publication"
    )
    parser.add_argument(
        "--data", type=Path, default=Path("demo-data"), metavar="DIR", help="where everything is kept (./demo-data)"
    )
    parser.add_argument("--flow", type=Path, metavar="FILE", help="deploy this flow instead of the demo's own")
    parser.add_argument(
        "--broker-port",
        type=whole(most=65535),
        default=1883,
        metavar="N",
        help="port of our own broker (1883; any if it is taken)",
    )
    parser.add_argument("--web-port", type=whole(most=65535), default=8080, metavar="N", help="port of the page (8080)")
    parser.add_argument("--for", type=above_0, dest="for_s", metavar="SECONDS", help="end by itself after this time")
    parser.add_argument(
        "--gateways",
        type=whole(1, 8),
        default=1,
        metavar="N",
        help="so many gateways with agents run one flow together (1)",
    )
    parser.add_argument("--plain", action="store_true", help="lines instead of a live display")


def run(args: argparse.Namespace) -> int:
    from edgert.demo.run import run as run_demo
    from edgert.demo.setup import Options

    given = {name: value for name, value in vars(args).items() if name != "verb"}
    return run_demo(Options(**given))
