"""`edgert fleet update`: brings a signed bundle to many boards over MQTT, in waves that stop at failures."""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from edgert.boards.board_state import UpdateProgress
from edgert.boards.requests import UpdateRequest, request_untrusted
from edgert.boards.waves import Track, Waves, cut, waves_untrusted
from edgert.cli import _broker
from edgert.cli._numbers import seconds
from edgert.core.errors import EdgertError
from edgert.core.ids import GATEWAY_NAME

if TYPE_CHECKING:
    from edgert.cli.fleet.board_watch import BoardWatch  # with the MQTT client: only where it is used

WAVES: Final = "5%,25%,100%"
TIMEOUT_S: Final = 3600.0
"""A download over a slow line, three starts, and 10 min of trial."""
CONNECT_S: Final = 15.0
QUIET_S: Final = 2.0
"""When no further board has shown itself for so long, all are taken to be seen."""
LOOK_S: Final = 0.5
STEP_PERCENT: Final = 25
NO_STATE: Final = "takes no updates: it has told of no slots (an image with two slots, and this version of edgert)"


def add(actions: Any) -> None:
    """Adds the action."""
    text = (
        "install a signed bundle on the boards of the fleet, wave by wave; each confirms it or goes back by itself, "
        "and the next wave waits for that. Can be run again: boards that run the version are left alone"
    )
    update = actions.add_parser("update", help="install a bundle on many boards, in waves", description=text)
    update.set_defaults(act=_update)
    update.add_argument("url", metavar="URL", help="of the bundle, as the boards reach it (http or https)")
    update.add_argument(
        "--wave", default=WAVES, metavar="P,P,...",
        help="part of the boards that is asked up to the end of each wave (default: %(default)s)",
    )  # fmt: skip
    update.add_argument(
        "--board", action="append", default=[], metavar="ID",
        help="a board, may come several times, in this order; default: all that are online, by name",
    )  # fmt: skip
    update.add_argument("--version", default="", metavar="V", help="version that the bundle has to have; spares asking")
    update.add_argument(
        "--max-failures", type=int, default=0, metavar="N", help="boards of a wave that may fail (default: 0)"
    )
    update.add_argument(
        "--timeout-s", type=seconds, default=TIMEOUT_S, metavar="S", help=f"per board ({TIMEOUT_S:.0f})"
    )
    update.add_argument("--drain", action="store_true", help="move a board's operators to others before it restarts")
    update.add_argument("--dry-run", action="store_true", help="print the waves, and ask no board")
    update.add_argument("--json", action="store_true", help="the result as one JSON object")
    update.add_argument("--fleet", default="default", metavar="NAME", help="the fleet's name (default: default)")
    _broker.add(update)


def _update(args: argparse.Namespace) -> int:
    from edgert.cli.fleet.board_watch import BoardWatch

    token = secrets.token_hex(8)
    plain = {"id": token, "url": args.url, "version": args.version, "drain": args.drain}
    request, percents = request_untrusted(plain), waves_untrusted(args.wave)
    if args.max_failures < 0:
        raise EdgertError(f"--max-failures: expected 0 or more, got {args.max_failures}")
    for option, name in (("--fleet", args.fleet), *(("--board", board) for board in args.board)):
        if not GATEWAY_NAME.fullmatch(name):
            raise EdgertError(f"{option}: expected a name of letters, digits, '_', '.' and '-', got {name!r}")
    # What the connection has to say is told as our own error.
    logging.getLogger("edgert.mqtt").addHandler(logging.NullHandler())
    changed = threading.Event()
    watch = BoardWatch(_broker.connection(args), args.fleet, token, changed.set)
    watch.connection.start()
    try:
        _listen(watch, changed)
        boards, others = _boards(args, watch)
        rollout = Waves(
            cut(boards, percents), token, args.url, args.version,
            max_failures=args.max_failures, timeout_s=args.timeout_s,
        )  # fmt: skip
        if not args.dry_run:
            _carry_out(rollout, watch, request, changed)
    finally:
        watch.connection.stop()
    print(json.dumps(result(rollout, others), indent=1) if args.json else "\n".join(lines(rollout, others)))
    return 0 if args.dry_run or rollout.good else 1


def _listen(watch: BoardWatch, changed: threading.Event) -> None:
    """Until all that the broker keeps of the fleet is there."""
    ends = time.monotonic() + CONNECT_S
    while not watch.listening and not watch.connection.error:
        if time.monotonic() > ends:
            raise EdgertError(f"broker {watch.connection.address} does not answer; no board was asked")
        changed.wait(0.2)
        changed.clear()
    if watch.connection.error:
        raise EdgertError(f"{watch.connection.error}; no board was asked")
    if watch.connection.protocol != "5":
        raise EdgertError(f"broker {watch.connection.address}: expected MQTT 5, got {watch.connection.protocol}")
    _until_quiet(changed, time.monotonic)


def _until_quiet(changed: threading.Event, clock: Callable[[], float]) -> None:
    """Boards amid an installation tell of each per cent, so that it may never be quiet: the wait has an end."""
    ends = clock() + CONNECT_S
    while clock() < ends and changed.wait(QUIET_S):
        changed.clear()


def _boards(args: argparse.Namespace, watch: BoardWatch) -> tuple[list[str], dict[str, str]]:
    """The boards that take part, and why others do not. Raises `EdgertError` where a named one cannot."""
    chosen = list(dict.fromkeys(args.board)) or watch.boards()
    others = {board: why for board in chosen if (why := _unable(watch, board, args.url))}
    if args.board and others:
        raise EdgertError("; ".join(f"board {board} {why}" for board, why in others.items()) + "; no board was asked")
    able = [board for board in chosen if board not in others]
    if not able:
        told = "; ".join(f"{board} {why}" for board, why in others.items()) or "none was seen"
        raise EdgertError(
            f"expected boards of fleet {args.fleet} that take updates at {watch.connection.address}: {told}"
        )
    return able, others


def _unable(watch: BoardWatch, board: str, url: str) -> str:
    """Why a board cannot take part; empty: it can. One that is amid this very update may just restart."""
    seen = watch.seen(board)
    update = seen.state.update if seen.state else None
    if not seen.online and (update is None or update.decided or update.url != url):
        return "is offline"
    return NO_STATE if seen.state is None else seen.state.refuses


def _carry_out(rollout: Waves, watch: BoardWatch, request: UpdateRequest, changed: threading.Event) -> None:
    say = _Says(rollout, lambda text: print(text, file=sys.stderr, flush=True))
    while not rollout.over:
        seen = {board: watch.seen(board) for board in rollout.tracks}
        for board in rollout.turn(time.monotonic(), seen):
            watch.ask(board, request)
        say.news()
        changed.wait(LOOK_S)
        changed.clear()


class _Says:
    """A line when a wave begins, and when a board comes to another phase."""

    def __init__(self, rollout: Waves, say: Callable[[str], None]) -> None:
        self._rollout, self._say = rollout, say
        self._wave = -1
        self._told: dict[str, str] = {}

    def news(self) -> None:
        rollout = self._rollout
        self._boards(rollout.waves[: rollout.wave])
        if not rollout.over and rollout.wave != self._wave:
            self._wave = rollout.wave
            boards = rollout.waves[self._wave]
            self._say(f"wave {self._wave + 1} of {len(rollout.waves)}: {', '.join(boards)}")
        self._boards(rollout.waves[: rollout.wave + 1])
        if rollout.stopped:
            self._say(f"stopped after {rollout.stopped}")

    def _boards(self, waves: Sequence[Sequence[str]]) -> None:
        for board in (board for wave in waves for board in wave):
            track = self._rollout.tracks[board]
            if track.ended == "left" or not (track.request or track.ended):
                continue
            told = _phase(track)
            if told != self._told.get(board):
                self._told[board] = told
                self._say(f"  {board}: {told}")


def _phase(track: Track) -> str:
    if track.ended:
        return f"{track.ended}: {track.why}" if track.why else track.ended
    if track.update is None:
        return "asked"
    percent = track.update.percent
    step = None if percent is None else percent // STEP_PERCENT * STEP_PERCENT
    update = track.update
    return str(UpdateProgress(update.phase, percent=step, why=update.why))


# -- the result


def result(rollout: Waves, others: Mapping[str, str]) -> dict[str, Any]:
    """Returns the result that `--json` prints."""
    boards = {
        board: {"result": track.ended, "why": track.why, "version": track.update.version if track.update else ""}
        for board, track in rollout.tracks.items()
    }
    return {"waves": rollout.waves, "boards": boards, "not_asked": dict(others), "stopped": rollout.stopped}


def lines(rollout: Waves, others: Mapping[str, str]) -> Sequence[str]:
    """For a terminal."""
    from edgert.cli._control import table

    rows: list[tuple[str, ...]] = [
        (board, str(number), track.ended or "-", track.why)
        for number, wave in enumerate(rollout.waves, 1)
        for board, track in ((board, rollout.tracks[board]) for board in wave)
    ]
    rows += [(board, "-", "not asked", why) for board, why in others.items()]
    end = [f"stopped after {rollout.stopped}; run the command again to go on"] if rollout.stopped else []
    return [*table(("board", "wave", "result", "why"), rows, left=4), *end]
