"""`edgert explain`: what a gateway will make of a flow."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from edgert.cli._control import add_socket, ask
from edgert.cli._documents import WHERE, load, registry
from edgert.cli.explain import running
from edgert.core.errors import EdgertError
from edgert.core.text.counted import counted
from edgert.flow.physical import Fusion, plan
from edgert.flow.plan import Plan, uncopied

if TYPE_CHECKING:
    from edgert.flow.graph import Flow

HELP = "show the graph of a flow and the instances that a gateway makes of it; with --running, where they run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", metavar="FILE", help=f"{WHERE}; with --running the name of a flow of the gateway")
    parser.add_argument(
        "--running", action="store_true",
        help="ask the gateway on this board: plan, the location of each instance, rows on each edge",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="for programs")
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

    known = registry()
    flow = load(Path(args.flow), known)
    physical = plan(flow, known, args.fusion or "full", fission=args.fission != "off")
    if args.json:
        print(json.dumps(_document(flow, physical, args.code), indent=1))
        return 0
    print(f"flow {flow.name}, {flow.delivery}, checkpoint every {flow.checkpoint_interval_s:g} s")
    print(f"\n{counted(len(flow.nodes), 'operator')}\n{explain.logical(flow)}")
    count, stages = len(physical.instances), len(list(physical.stages()))
    instances = counted(count, "instance")
    of_stages = f" of {stages} stages" if stages > count else ""
    print(f"\n{instances}{of_stages}\n{explain.physical(physical, known)}")
    if args.code:
        for name, source in _code(physical).items():
            print(f"\n{name}\n{source}")
    return 0


def _code(physical: Plan) -> dict[str, str]:
    """The function of each chain of operators, by the chain's name."""
    from edgert.operators.stateless import chain_of

    stages = (stage for copies in physical.sets() for stage in copies[0].stages or copies[:1])
    chains = [stage for stage in stages if stage.kind == "stateless"]
    return {uncopied(one.name)[0]: chain_of(one.nodes, one.live)[0].source.strip() for one in chains}


def _document(flow: Flow, physical: Plan, code: bool) -> dict[str, object]:
    """The graph and the instances for programs."""
    operators = [
        {"name": node.name, "type": node.type, "outputs": [output.name for output in flow.outputs(node.name)]}
        for node in flow.nodes.values()
    ]
    instances = [
        {
            "name": stage.name, "kind": stage.kind, "operators": [*stage.operators], "copies": len(copies),
            "keys": [{"field": field, "kind": kind} for field, kind in stage.keys],
            "outputs": [
                {"to": output.instance, "port": output.port, "division": output.division} for output in stage.outputs
            ],
        }
        for copies in physical.sets()
        for stage in copies[0].stages or copies[:1]
    ]  # fmt: skip
    found: dict[str, object] = {
        "flow": flow.name, "delivery": flow.delivery, "checkpoint_interval_s": flow.checkpoint_interval_s,
        "operators": operators, "instances": instances,
    }  # fmt: skip
    return found | {"code": _code(physical)} if code else found


def _of_running(args: argparse.Namespace) -> int:
    flow = running.flow_of(ask(args, "figures"), args.flow)
    print(json.dumps(flow, indent=1) if args.json else "\n".join(running.lines(flow)))
    return 0
