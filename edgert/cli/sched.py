"""`edgert sched`: what the agent of this board has the Linux scheduler do, and why."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from edgert.cli._control import add_agent, ask_agent, table
from edgert.core.errors import EdgertError

HELP = "see and steer how the agent has the Linux scheduler serve the flows"
STATUS, EXPLAIN, DRY_RUN, POLICY = "status", "explain", "dry-run", "policy"
HEAD: Final = ("operator", "location", "metric", "priority", "nice", "slice", "got", "waited")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="commands", dest="sched", metavar="COMMAND", required=True)
    verbs.add_parser(STATUS, help="metric, priority, nice value and CPU share got of each operator")
    explain = verbs.add_parser(EXPLAIN, help="every metric of one operator, and what followed from it")
    explain.add_argument("operator", help="its name as `status` shows it")
    dry = verbs.add_parser(DRY_RUN, help="what a policy would do now; nothing is changed")
    dry.add_argument("policy", nargs="?", help="default: the one in force")
    policy = verbs.add_parser(POLICY, help="use another policy, until the agent starts anew")
    policy.add_argument("policy", help="such as 'qs', 'slack every 100 ms', 'when cpu > 80 %%: qs else: none', 'none'")
    for verb in verbs.choices.values():
        add_agent(verb)


def run(args: argparse.Namespace) -> int:
    given = {name: getattr(args, name) for name in ("operator", "policy") if getattr(args, name, None)}
    answer = ask_agent(f"sched.{args.sched}", given, socket=args.socket, config=args.config)
    if answer.get("enabled") is False:
        raise EdgertError("OS scheduling is off on this board: expected sched.enabled = true in the agent's settings")
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        print({EXPLAIN: explained, DRY_RUN: planned}.get(args.sched, shown)(answer))
    return 1 if answer.get("errors") else 0


def shown(status: dict[str, Any]) -> str:
    """A line per operator, and what is amiss."""
    measures = "".join(f", {name} {value:.0%}" for name, value in status["measures"].items())
    lasted = status["lasted_s"]
    lines = [
        f"policy {status['policy']} ({status['rule']}) by {status['mechanism']} every {status['period_s']:g} s"
        + measures,
        "period {}: asked {:.1f} ms, acted within {:.1f} ms, CPU {:.1f} ms".format(
            status["periods"], *(lasted[name] * 1e3 for name in ("report", "action", "cpu"))
        ),
    ]
    lines += _cooperation(status["cooperation"])
    rows = [_cells(row) for row in status["operators"]]
    lines += table(HEAD, rows, len(HEAD))
    lines += [f"note   {text}" for text in status["notes"]]
    return "\n".join(lines + [f"error  {text}" for text in status["errors"]])


def _cooperation(told: dict[str, Any]) -> list[str]:
    """Terms of other boards, a line each; nothing where no flow is shared."""
    if told["state"] == "off":
        return ["cooperation with other boards is off (sched.cooperate)"]
    lines = []
    for name, board in told["boards"].items():
        span = "no threads" if board["span"] is None else "priorities {:.4g} to {:.4g}".format(*board["span"])
        with_us = "" if board["shares"] else ", shares no flow with this board"
        lines.append(f"board {name}: {board['policy']}, {span}, flows {', '.join(board['flows'])}{with_us}")
    for name, factor in told["held"].items():
        lines.append(f"held   {name}: {factor:.2g} of its priority, its successor on another board is congested")
    if told["left_out"]:
        lines.append(f"note   {told['left_out']} shared flows do not fit into what is told to other boards")
    return lines + [f"note   {error}" for error in told["errors"]]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    metrics = " ".join(f"{name}={value:.4g}" for name, value in row["metrics"].items())
    figures = (row.get("priority"), row.get("nice"), row.get("slice_ms"))
    shares = (f"{row[name]:.0%}" if name in row else "-" for name in ("cpu", "waited"))
    plain = ("-" if figure is None else f"{figure:.4g}" for figure in figures)
    return (row["operator"], row["location"], metrics or "-", *plain, *shares)


def planned(answer: dict[str, Any]) -> str:
    """The actions, a line each."""
    nothing = "not known" if answer["errors"] else "nothing"
    lines = [f"policy {answer['policy']} would do:", *(f"  {action}" for action in answer["actions"] or [nothing])]
    lines += [f"note   {text}" for text in answer["notes"]]
    return "\n".join(lines + [f"error  {text}" for text in answer["errors"]])


def explained(answer: dict[str, Any]) -> str:
    """Metrics, priority, and what the operator's threads got."""
    lines = [f"{answer['operator']} in {answer['location'] or 'no known location'}, query {answer['query']}"]
    if answer["latency_s"]:
        lines.append(f"  its query wants results within {answer['latency_s'] * 1e3:g} ms")
    for name, metric in answer["metrics"].items():
        source = f", from {', '.join(metric['from'])}" if metric["from"] else ""
        lines.append(f"  {name} = {metric['value']:.6g} ({metric['about']}{source})")
    for name, of in answer["remote"].items():
        known = ", ".join(f"{metric} {value:.4g}" for metric, value in of.items())
        lines.append(f"  sends to {name} on another board: {known or 'its board has not told of it'}")
    if "held" in answer:
        lines.append(f"  its priority is {answer['held']:.2g} of what it were: that successor's queue is longer")
    if answer["rank"]:
        lines.append(
            f"  priority {answer['priority']:.6g} by {answer['policy']}: rank {answer['rank']} of {answer['of']}"
        )
    if answer["shares_threads_with"]:
        others = ", ".join(answer["shares_threads_with"])
        lines.append(f"  its threads also run {others}: the greatest priority of all counts")
    for name, text in (("nice", "nice value"), ("slice_ms", "slice, ms")):
        if name in answer:
            lines.append(f"  {text}: {answer[name]:g}")
    if "cores" in answer:
        lines.append(f"  only on the fast cores: {', '.join(map(str, answer['cores']))}")
    if "cpu" in answer:
        lines.append(f"  got {answer['cpu']:.0%} of a core, waited for {answer['waited']:.0%} of one")
    return "\n".join(lines)
