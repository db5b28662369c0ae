"""`edgert deploy`: brings a flow to a gateway over MQTT, or removes one, and says what the gateway answers.

With `--fleet` and no board or broker, on a board whose agent belongs to that fleet, the agent gets the flow: the whole
fleet runs it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from edgert.cli import _broker
from edgert.cli._control import ask_agent, by_board
from edgert.cli._documents import WHERE, named, notes, read, registry
from edgert.cli._numbers import seconds
from edgert.control.messages import ControlError
from edgert.core.errors import DocumentError, EdgertError, show
from edgert.core.ids import short
from edgert.flow.versions.kept_state import KeptState, kept_state_untrusted

if TYPE_CHECKING:
    from edgert.core.settings.connection import Connection
    from edgert.flow.graph import Flow
    from edgert.mqtt.clients.deployment import Deployment, DeploymentAnswer

HELP = "bring a flow to a gateway over MQTT (or remove one) and wait for its answer"
HEURISTIC: Final = "hybrid"
"""Places a flow that was deployed without naming a board."""
AGENT_S: Final = 180.0
"""Timeout of an agent's answer, as in `edgert fleet`: a flow has a minute to come to a batch boundary."""
QUIET_S: Final = 0.5
"""When no further gateway has shown itself for so long, all are taken to be seen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", type=Path, nargs="?", metavar="FLOWFILE", help=WHERE)
    parser.add_argument("--remove", metavar="NAME", help="remove this flow; its results still leave")
    parser.add_argument(
        "--dry-run", action="store_true",
        help="change nothing: say which state of the running version the document would keep, and which it would lose",
    )  # fmt: skip
    parser.add_argument("--gateway", default="", metavar="ID", help="default: the only one of the fleet that is online")
    parser.add_argument(
        "--fleet", metavar="NAME",
        help="fleet of the gateway (default); without --gateway, --broker and --config, on a board with an agent of it:"
        " the fleet chooses the boards on which the flow runs",
    )  # fmt: skip
    parser.add_argument("--socket", metavar="PATH", help="that agent's control socket; default: that of its settings")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the gateway's settings have its name, fleet and broker"
    )
    _broker.add(parser)
    parser.add_argument("--timeout-s", type=seconds, default=15.0, metavar="S", help="longest wait (15)")
    parser.add_argument("--json", action="store_true", help="the answer as one JSON object")


def run(args: argparse.Namespace) -> int:
    by_fleet = args.fleet is not None and not (args.gateway or args.broker or args.config)
    settings = None
    if args.config is not None:
        from edgert.core.config import load
        from edgert.core.settings.gateway import GatewaySettings

        settings = load(GatewaySettings, args.config, os.environ)
        args.gateway = args.gateway or settings.gateway.id
    if args.fleet is None:
        args.fleet = settings.gateway.fleet if settings else "default"
    if args.dry_run and args.remove is not None:
        raise EdgertError(
            "--dry-run: expected a flow file, got --remove: a flow that is removed ships its open windows"
        )
    name, payload, flow = _what(args)
    if by_fleet and (told := _by_agent(args, name, flow)):
        _print(args, *told)
        return 0
    # What the connection has to say is told as our own error.
    logging.getLogger("edgert.mqtt").addHandler(logging.NullHandler())
    changed = threading.Event()
    with _broker.errors_name_options(args):
        deployment = _deployment(args, settings.central if settings else None, name, payload, flow, changed.set)
        deployment.start()
        try:
            _print(args, *_carry_out(args, name, deployment, changed))
        finally:
            deployment.close()
    return 0


def _print(args: argparse.Namespace, sentence: str, facts: Mapping[str, Any]) -> None:
    print(json.dumps(facts) if args.json else sentence)


def _by_agent(args: argparse.Namespace, name: str, flow: Flow | None) -> tuple[str, dict[str, Any]] | None:
    """Carries it out by this board's agent and returns the sentence to print and the facts in it; None where no agent
    answers, it belongs to another fleet, or the flow to be removed is none of the fleet's."""

    def ask(verb: str, asked: Mapping[str, Any] | None = None) -> Any:
        return ask_agent(verb, asked, AGENT_S, socket=args.socket)

    try:
        fleet = ask("fleet.status")["fleet"]
    except ControlError:
        if args.socket:
            raise
        return None
    if fleet != args.fleet:
        print(f"edgert: the agent of this board belongs to fleet {fleet}, not {args.fleet}: the broker is asked for a"
              f" gateway of {args.fleet}", file=sys.stderr)  # fmt: skip
        return None
    if flow and args.dry_run:
        found = ask("fleet.compare", {"flow": name, "document": dict(flow.document)})
        return _compared(name, f"fleet {fleet}", kept_state_untrusted(found["state"]))
    if flow:
        asked = {"document": dict(flow.document), "pins": {}, "labels": {}, "heuristic": HEURISTIC}
        found = ask("fleet.deploy", asked)
        for note in notes(flow):
            print(f"edgert: {note}", file=sys.stderr)
        state = kept_state_untrusted(found.get("state"))
        said = f"flow {name} runs in fleet {fleet} by plan {short(found['plan'])}: {by_board(found['assignment'])}"
        facts = {"flow": name, "fleet": fleet, "plan": found["plan"], "assignment": found["assignment"]}
        return "\n".join([said, *state.sentences(done=True)]), {**facts, "state": to_builtins(state)}
    if name not in ask("fleet.flows")["flows"]:
        return None
    ask("fleet.remove", {"flow": name})
    said = f"flow {name} is removed from fleet {fleet}; its results still leave"
    return said, {"flow": name, "fleet": fleet, "removed": True}


def _what(args: argparse.Namespace) -> tuple[str, bytes, Flow | None]:
    """(name of the flow, what to send, the flow; None: it is to be removed). Raises `EdgertError` for whatever the
    gateway would refuse."""
    from edgert.core.ids import GATEWAY_NAME, TABLE_NAME

    if (args.flow is None) == (args.remove is None):
        raise EdgertError("deploy: expected either a flow file or --remove NAME")
    for option, value in (("--gateway", args.gateway), ("--fleet", args.fleet)):
        if (value or option == "--fleet") and not GATEWAY_NAME.fullmatch(value):
            raise EdgertError(f"{option}: expected a name of letters, digits, '_', '.' and '-', got {show(value)}")
    if args.remove is not None:
        if not TABLE_NAME.fullmatch(args.remove):
            name = show(args.remove)
            raise EdgertError(f"--remove: there is no flow {name}: names have small letters, digits, _ and -")
        return args.remove, b"", None

    from edgert.flow.document import load

    payload = read(args.flow)
    flow = load(payload, registry(), what=named(args.flow))
    return flow.name, payload, flow


def _deployment(
    args: argparse.Namespace, settings: Connection | None, name: str, payload: bytes, flow: Flow | None,
    on_change: Callable[[], None],
) -> Deployment:  # fmt: skip
    from edgert.mqtt.clients.deployment import Deployment

    token = secrets.token_hex(16) if args.dry_run else ""
    if token and flow is not None:
        payload = json.dumps({"document": flow.document}).encode()
    client_id = f"edgert-deploy-{secrets.token_hex(4)}"
    return Deployment(
        _broker.connection(args, settings),
        client_id,
        args.fleet,
        name,
        payload,
        gateway=args.gateway,
        written=secrets.token_bytes(8),
        on_change=on_change,
        compare=token,
    )


def _carry_out(
    args: argparse.Namespace, name: str, deployment: Deployment, changed: threading.Event
) -> tuple[str, dict[str, Any]]:
    """Carries it out and returns the sentence to print and the facts in it; raises `EdgertError` when not."""
    end = time.monotonic() + args.timeout_s
    broker = deployment.connection.address

    def wait(condition: Callable[[], object], until: float = end) -> bool:
        while not condition():
            rest = until - time.monotonic()
            if rest <= 0:
                return False
            changed.wait(min(rest, 0.2))  # an error of the connection does not wake us
            changed.clear()
        return True

    connection = deployment.connection
    if not wait(lambda: deployment.listening or connection.error):
        raise EdgertError(f"broker {broker} does not answer within {args.timeout_s:g} s; nothing was sent")
    if connection.error:
        raise EdgertError(f"{connection.error}; nothing was sent")
    if not deployment.gateway:
        deployment.choose(_only_one(args.fleet, broker, deployment, wait))
    if args.dry_run:
        if not wait(lambda: deployment.compared is not None):
            state = deployment.seen.get(deployment.gateway, "unknown")
            raise EdgertError(
                f"no answer from gateway {deployment.gateway} of fleet {args.fleet} at {broker} within "
                f"{args.timeout_s:g} s: its status is {state}; nothing was changed"
            )
        if isinstance(deployment.compared, str):
            raise EdgertError(f"gateway {deployment.gateway}: {deployment.compared}; nothing was changed")
        assert deployment.compared is not None
        return _compared(name, f"gateway {deployment.gateway}", deployment.compared)
    if not wait(lambda: deployment.answer):
        raise EdgertError(_no_answer(args, name, deployment, broker))
    assert deployment.answer is not None
    answer, removed = deployment.answer, args.remove is not None
    for caution in answer.cautions:
        print(f"edgert: note: {caution}", file=sys.stderr)
    said = _told(name, deployment.gateway, answer, removed=removed)
    facts = {"flow": name, "fleet": args.fleet, "gateway": deployment.gateway, "version": answer.version}
    if removed:
        return said, {**facts, "removed": True}
    lines = answer.state.sentences(done=True)
    return "\n".join([said, *lines]), {**facts, "cautions": answer.cautions, "state": to_builtins(answer.state)}


def _compared(name: str, where: str, state: KeptState) -> tuple[str, dict[str, Any]]:
    """The sentences and facts of a dry run."""
    said = [f"flow {name} on {where}: nothing is changed", *state.sentences(done=False)]
    return "\n".join(said), {"flow": name, "dry_run": True, "state": to_builtins(state)}


def _only_one(fleet: str, broker: str, deployment: Deployment, wait: Callable[..., bool]) -> str:
    """The gateway that is meant when none was named. Raises `EdgertError` naming those that there are."""
    known = -1
    while known != len(deployment.seen):
        known = len(deployment.seen)
        wait(lambda count=known: len(deployment.seen) != count, time.monotonic() + QUIET_S)
    online = deployment.online
    if len(online) == 1:
        return online[0]
    listed = ", ".join(f"{name} ({state})" for name, state in sorted(deployment.seen.items())) or "none"
    got = f"{len(online)} that are online" if online else "none"
    raise EdgertError(
        f"--gateway: expected exactly one gateway of fleet {fleet} online at {broker}, got {got}; seen: {listed}. "
        f"Name one with --gateway{'' if deployment.seen else ', or the right --fleet or --broker'}; nothing was sent"
    )


def _no_answer(args: argparse.Namespace, name: str, deployment: Deployment, broker: str) -> str:
    gateway = deployment.gateway
    start = f"no answer from gateway {gateway} of fleet {args.fleet} at {broker} within {args.timeout_s:g} s"
    if not deployment.sent:
        return f"{start}: {deployment.connection.error or 'the connection was lost'}; nothing was sent"
    match deployment.seen.get(gateway):
        case None:
            state = "no gateway of this name was ever seen there; see --gateway and --fleet"
        case "online":
            state = "its status is online: look at its log"
        case other:
            state = f"its status is {other}"
    if args.remove is not None:
        return f"{start}; {state}. Flow {name} may still run there: remove it again once the gateway is online"
    return f"{start}; {state}. The document waits at the broker until it connects (take it back: --remove {name})"


def _told(name: str, gateway: str, answer: DeploymentAnswer, *, removed: bool) -> str:
    if not answer.accepted:
        runs, instead = "", f"take it back (--remove {name})"
        if answer.running_version is not None:
            runs, instead = f"; version {answer.running_version} runs on", "deploy that version again"
        held = "the broker still holds the refused document, and the gateway tries it again when it restarts"
        what = f"gateway {gateway} refused flow {name}{runs}; {held}: deploy a mended one, or {instead}"
        raise DocumentError(what, answer.problems)
    if not removed:
        return f"flow {name} on gateway {gateway}: accepted, version {answer.version}"
    if not answer.existed:
        raise EdgertError(
            f"--remove: expected the name of a flow of gateway {gateway}, got {show(name)}: there was none "
            "(`edgert flows` on the board lists them); a refused document of that name is taken back"
        )
    if answer.version is None:
        return f"flow {name} on gateway {gateway} is removed; it was stopped before"
    return f"flow {name} on gateway {gateway}: version {answer.version} is removed"
