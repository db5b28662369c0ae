"""`edgert explain`: what a gateway will make of a flow."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgert.cli._documents import load, registry

HELP = "show the graph of a flow and the instances that a gateway makes of it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", type=Path, metavar="FILE", help="a document, TOML or JSON")
    parser.add_argument("--code", action="store_true", help="also the function that each chain of operators becomes")


def run(args: argparse.Namespace) -> int:
    from edgert.flow import explain
    from edgert.flow.physical import plan
    from edgert.operators.stateless import chain_of

    known = registry()
    flow = load(args.flow, known)
    physical = plan(flow, known)
    print(f"flow {flow.name}, checkpoint every {flow.checkpoint_interval_s:g} s")
    print(f"\n{len(flow.nodes)} operators\n{explain.logical(flow)}")
    print(f"\n{len(physical.instances)} instances\n{explain.physical(physical, known)}")
    if args.code:
        for instance in physical.instances.values():
            if instance.kind == "stateless":
                chain, _ = chain_of(instance.nodes, instance.live)
                print(f"\n{instance.name}\n{chain.source.strip()}")
    return 0
