"""`python -m tests.lab`: gateways in network namespaces of their own, joined by a switch whose ways can be changed."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent.simulation.described.description import read
from edgert.control.client import call
from edgert.control.messages import ControlError
from edgert.control.server import ControlServer
from edgert.core.errors import EdgertError
from tests.lab import drains, faults, fleet_faults, fleet_moves, namespaces
from tests.lab.commands import SOCKET, Commands
from tests.lab.lab import Lab
from tests.lab.seeds import Summary

EPILOG = """\
`up` runs in the foreground; the other commands steer it from another terminal. Ctrl-C, or `down`, ends all that it
started; its files stay in the folder. `enter g1` opens a shell on a board: its page is at http://127.0.0.1:8080, its
sensors' broker at port 1883 of its address. Needs root. exit status: 0 done, 1 not done (faults: something was lost or
doubled), 2 wrong arguments"""

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "tests.lab", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--socket", type=Path, default=SOCKET, help="of the laboratory (default: %(default)s)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start a laboratory, and keep it until Ctrl-C")
    up.add_argument("file", type=Path, help="its description, as tests/lab/boards.toml")
    up.add_argument("--folder", type=Path, default=Path("build/lab"), help="emptied first (default: %(default)s)")
    commands.add_parser("status", help="say what runs, and what goes over which way")
    cut = _between(commands, "cut", "cut the ways between two places: boards, or central")
    delay = _between(commands, "delay", "delay what goes between two places")
    delay.add_argument("milliseconds", type=float)
    delay.add_argument("--jitter", type=float, metavar="MS", help="greatest addition to it (default: as it is)")
    loss = _between(commands, "loss", "lose part of the frames between two places")
    loss.add_argument("part", type=_part, help="0 to 1")
    rate = _between(commands, "rate", "limit the bandwidth between two places")
    rate.add_argument("mbit_s", type=float, help="0: no limit")
    for parser_of_way in (cut, delay, loss, rate):
        parser_of_way.add_argument("--one-way", action="store_true", help="only from A to B")
    heal = commands.add_parser("heal", help="end the cuts between two places, or all cuts")
    heal.add_argument("places", nargs="*", metavar="A B")
    for name, text in (("kill", "kill -9 a board's gateway and agent"), ("start", "start them again")):
        commands.add_parser(name, help=text).add_argument("board")
    commands.add_parser("enter", help="open a shell in a place's namespace").add_argument("place")
    commands.add_parser("down", help="end the laboratory")
    some = commands.add_parser("faults", help="a flow over three boards, with cuts and kills from seeds; compares")
    _of_seeds(some)
    some.add_argument("--seconds", type=float, default=12.0, metavar="S",
                      help="of messages; a fault lasts up to a third of it (default: %(default)s)")  # fmt: skip
    some.add_argument("--moves", type=int, default=0, metavar="N", help="moves of operators meanwhile (default: none)")
    some.add_argument("--sensors", type=int, default=faults.SENSORS, metavar="N", help="(default: %(default)s)")
    some.add_argument("--folder", type=Path, default=Path("build/lab-faults"), help="(default: %(default)s)")
    text = "a flow that agents run, with kills of its coordinator, kills of boards, and cuts, from seeds; compares"
    fleet = commands.add_parser("fleet", help=text)
    _of_seeds(fleet)
    fleet.add_argument("--faults", type=int, default=4, metavar="N", help="of each seed (default: %(default)s)")
    fleet.add_argument("--folder", type=Path, default=Path("build/lab-fleet"), help="(default: %(default)s)")
    text = "many moves of a flow by agents, amid kills of either board, of the coordinator, and cuts; compares"
    moves = commands.add_parser("moves", help=text)
    _of_seeds(moves)
    moves.add_argument("--moves", type=int, default=50, metavar="N", help="of each seed (default: %(default)s)")
    moves.add_argument("--sensors", type=int, default=10_000, metavar="N", help="keys (default: %(default)s)")
    moves.add_argument("--no-faults", action="store_true", help="to measure the pauses")
    moves.add_argument("--folder", type=Path, default=Path("build/lab-moves"), help="(default: %(default)s)")
    text = "each board, of eleven, in turn is drained, restarted and filled under load; compares"
    drain = commands.add_parser("drains", help=text)
    _of_seeds(drain)
    drain.add_argument("--file", type=Path, default=drains.FILE, help="another description (default: %(default)s)")
    drain.add_argument("--folder", type=Path, default=Path("build/lab-drains"), help="(default: %(default)s)")
    return parser


def kinds(args: argparse.Namespace) -> Sequence[str]:
    """The faults amid the moves."""
    return ("none",) if args.no_faults else fleet_moves.FAULTS


def _of_seeds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of them (default: %(default)s)")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write what came of each seed there, as it ends; seeds that it has are not run again",
    )


def _between(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text)
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    return parser


def _part(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected 0 to 1, got {text}")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    args = build_parser().parse_args(argv)
    try:
        if args.command in ("up", "faults", "fleet", "moves", "drains") and (reason := namespaces.lack()):
            raise EdgertError(reason)
        if args.command == "up":
            return asyncio.run(_up(args))
        if args.command == "faults":
            return _faults(args, lambda seed, folder: faults.run(seed, folder, args.seconds, args.moves, args.sensors))
        if args.command == "fleet":
            return _faults(args, lambda seed, folder: fleet_faults.run(seed, folder, args.faults))
        if args.command == "moves":
            return _faults(
                args, lambda seed, folder: fleet_moves.run(seed, folder, args.moves, args.sensors, kinds(args))
            )
        if args.command == "drains":
            return _faults(args, lambda seed, folder: drains.run(seed, folder, args.file))
        return _steer(args)
    except KeyboardInterrupt:
        return 130
    except (EdgertError, OSError) as error:
        print(f"tests.lab: {error}", file=sys.stderr)
        return 1


async def _up(args: argparse.Namespace) -> int:
    lab = Lab(read(args.file), args.folder.absolute())
    commands = Commands(lab)
    server = ControlServer(args.socket, commands.handlers())
    await server.start()  # first: only one laboratory has this socket
    try:
        for number in _ENDS:
            signal.signal(number, signal.default_int_handler)
        empty(lab.folder)
        lab.start()
        for number in _ENDS:
            asyncio.get_running_loop().add_signal_handler(number, commands.ended.set)
        print(f"{len(lab.boards)} boards run; files: {lab.folder}; end them with Ctrl-C", flush=True)
        await commands.ended.wait()
    finally:
        lab.close()
        await server.stop()
        _forget(args.socket)
    return 0


def _forget(socket: Path) -> None:
    with contextlib.suppress(OSError):
        Path(f"{socket}.lock").unlink()
        socket.parent.rmdir()


def empty(folder: Path) -> None:
    """Makes an empty folder, marked as a laboratory's. Raises `EdgertError` where one with other files is there."""
    marker = folder / "laboratory"
    if folder.exists() and any(folder.iterdir()) and not marker.exists():
        raise EdgertError(f"expected {folder} to be empty, or of an earlier laboratory; choose another with --folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    marker.touch()


def _faults(args: argparse.Namespace, run: Callable[[int, Path], Any]) -> int:
    summary = Summary(args.json)
    for seed in range(args.first, args.first + args.seeds):
        if summary.has(seed):
            print(f"seed {seed}: was run before, see {args.json}", flush=True)
            continue
        folder = args.folder / str(seed)
        empty(folder)
        try:
            outcome = run(seed, folder.absolute())
        except AssertionError as error:  # waited in vain
            print(f"seed {seed}: BAD, not carried through: {error}\n  files: {folder}\n", flush=True)
            summary.note({"seed": seed, "good": False, "not carried through": str(error)})
            continue
        print(f"seed {seed}: {outcome}" + ("" if outcome.good else f"  files: {folder}\n"), flush=True)
        summary.note(outcome.plain())
        if outcome.good:
            shutil.rmtree(folder)
    print(summary.verdict())
    return 1 if summary.bad else 0


def _steer(args: argparse.Namespace) -> int:
    verb, arguments = _request(args)
    answer = call(args.socket, verb, arguments, timeout_s=90)
    if args.command == "status":
        print(as_text(answer))
    elif args.command == "enter":
        nsenter = ["nsenter", f"--net={answer['namespace']}", "--", os.environ.get("SHELL", "/bin/sh")]
        os.execvp(nsenter[0], nsenter)
    return 0


def _request(args: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    given = vars(args)
    way: dict[str, Any] = {name: given[name] for name in ("a", "b", "one_way") if name in given}
    if args.command == "heal":
        if len(args.places) not in (0, 2):
            raise ControlError(f"expected two places, or none to heal all cuts, got {' '.join(args.places)}")
        a, b = args.places or ("", "")
        return "heal", {"a": a, "b": b}
    if args.command in ("delay", "loss", "rate"):
        return "change", {**way, "changes": _changes(args)}
    return args.command, {**way, **{name: given[name] for name in ("board", "place") if name in given}}


def _changes(args: argparse.Namespace) -> dict[str, float]:
    if args.command == "loss":
        return {"loss": args.part}
    value = args.mbit_s if args.command == "rate" else args.milliseconds
    if value < 0:
        raise ControlError(f"expected a number that is not negative, got {value:g}")
    if args.command == "rate":
        return {"bytes_per_s": value * 125_000}
    jitter = {} if args.jitter is None else {"jitter_s": args.jitter / 1000}
    return {"delay_s": value / 1000, **jitter}


def as_text(status: dict[str, Any]) -> str:
    """Of the verb `status`: a line for each board, then one for each way."""
    lines = [f"files {status['folder']}; tables {status['central']['tables']}; central {status['central']['address']}"]
    for board in status["boards"]:
        programs = [f"gateway {_runs(board['gateway'])}"]
        if board["agent"] is not None:
            programs.append(f"agent {_runs(board['agent'])}")
        limits = f"{board['cores'] or 'all'} cores, {board['memory_mb'] or 'all'} MB" + (
            f" ({board['unlimited']})" if board["unlimited"] else ""
        )
        lines.append(f"{board['name']:12} {board['address']:12} {', '.join(programs)}; {limits}; {board['control']}")
    for way in status["ways"]:
        what = "CUT" if way["is_cut"] else f"{way['delay_ms']:g} ms + {way['jitter_ms']:g}, loss {way['loss']:g}"
        limit = f", {way['mbit_s']:g} Mbit/s" if way["mbit_s"] else ""
        dropped = f"lost {way['lost']}, overflowed {way['overflowed']}, cut {way['cut']}"
        lines.append(f"{way['from']:12} → {way['to']:12} {what}{limit}; {way['forwarded']} frames; {dropped}")
    return "\n".join(lines)


def _runs(running: bool) -> str:
    return "runs" if running else "is down"


if __name__ == "__main__":
    sys.exit(main())
