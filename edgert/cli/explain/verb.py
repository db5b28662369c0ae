"""`edgert explain`: what a gateway will make of a flow."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import get_args

from edgert.cli._control import add_socket, ask
from edgert.cli._documents import load, registry
from edgert.cli.explain import running
from edgert.core.errors import EdgertError
from edgert.core.text.counted import counted
from edgert.flow.physical import Fusion, plan
from edgert.flow.plan import uncopied

HELP = "show the graph of a flow and the instances that a gateway makes of it; with --running, where they run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "flow", metavar="FILE", help="a document, TOML or JSON; with --running the name of a flow of the gateway"
    )
    parser.add_argument(
        "--running", action="store_true",
        help="ask the gateway on this board: plan, the location of each instance, rows on each edge",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="with --running: for programs")
    add_socket(parser)
    parser.add_argument("--code", action="store_true", help="also the function that each chain of operators becomes")
    parser.add_argument(
        "--fusion", choices=get_args(Fusion),
        help="what is fused: all that one instance alone feeds (full, the default), what stands in a line, "
        "chains of stateless operators, or nothing",
    )  # fmt: skip
    parser.add_argument(
        "--fission", choices=("on", "off"), help="off: one instance of each operator, whatever FILE says"
    )


def run(args: argparse.Namespace) -> int:
    if args.running:
        if args.code or args.fusion or args.fission:
            raise EdgertError("expected --code, --fusion and --fission with a FILE: the gateway has its own settings")
        return _of_running(args)
    from edgert.flow import explain
    from edgert.operators.stateless import chain_of

    known = registry()
    flow = load(Path(args.flow), known)
    physical = plan(flow, known, args.fusion or "full", fission=args.fission != "off")
    print(f"flow {flow.name}, {flow.delivery}, checkpoint every {flow.checkpoint_interval_s:g} s")
    print(f"\n{counted(len(flow.nodes), 'operator')}\n{explain.logical(flow)}")
    count, stages = len(physical.instances), len(list(physical.stages()))
    instances = counted(count, "instance")
    of_stages = f" of {stages} stages" if stages > count else ""
    print(f"\n{instances}{of_stages}\n{explain.physical(physical, known)}")
    if args.code:
        for instance in (stage for copies in physical.sets() for stage in copies[0].stages or copies[:1]):
            if instance.kind == "stateless":
                chain, _ = chain_of(instance.nodes, instance.live)
                print(f"\n{uncopied(instance.name)[0]}\n{chain.source.strip()}")
    return 0


def _of_running(args: argparse.Namespace) -> int:
    flow = running.flow_of(ask(args, "figures"), args.flow)
    print(json.dumps(flow, indent=1) if args.json else "\n".join(running.lines(flow)))
    return 0
