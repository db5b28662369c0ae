"""Requests to other boards' gateways, which do not wait for long on a board that has fallen silent.

A connection whose other end lost its power, or the way there, says nothing for minutes, and a flow may stand still
meanwhile. So a board from which an answer is awaited is pinged. Where it does not answer pings either, or has started
anew, the answer is no more waited for, and other boards are asked to pass the request on: of two boards that do not
reach each other both may reach a third one. All that gateways are asked for may be asked twice. A command to a flow's
coordinator may not, and is not passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from agent.lease.leases import AskBoard
from agent.lease.voters import lately_s
from agent.membership.members import State
from agent.membership.roster import Roster
from agent.network.transport import RequestError, UnansweredError
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, show

GATEWAY: Final = "fleet.gateway"
PASS_ON: Final = "fleet.pass-on"
MOST_BY: Final = 3
"""Boards that are asked to pass a request on, one after the other."""
PING_S: Final = 1.0
"""Time between two pings of a board from which an answer is awaited."""


class FleetRequests:
    """Asks as the transport does; `fleet.gateway` also through another board."""

    def __init__(
        self, name: str, roster: Roster, request: AskBoard, clock: Clock, random: Random, ping: Callable[[str], None]
    ) -> None:
        self._name, self._roster, self._request = name, roster, request
        self._clock, self._random, self._ping = clock, random, ping
        self._silent: dict[str, float] = {}
        """Board that fell silent -> when. It is asked directly again once it has answered a ping."""

    async def request(self, board: str, verb: str, args: Mapping[str, Any], timeout_s: float) -> Any:
        """The answer of the agent of `board`. Raises `RequestError`."""
        try:
            return await self._directly(board, verb, args, timeout_s)
        except UnansweredError:
            ends = self._clock.monotonic() + timeout_s
            for by in self._others(board) if verb == GATEWAY else ():
                left_s, answer = ends - self._clock.monotonic(), None
                told = {"to": board, "args": args, "timeout_s": left_s}
                with contextlib.suppress(RequestError):
                    answer = await self._directly(by, PASS_ON, told, left_s)
                if isinstance(answer, Mapping) and "answer" in answer:
                    return answer["answer"]
                if isinstance(answer, Mapping) and "refused" in answer:
                    raise RequestError(str(answer["refused"])) from None
            raise

    async def serve(self, sender: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Passes a request of another agent on: `{"to": board, "args": arguments of fleet.gateway, "timeout_s": s}`.
        The answer is empty where the board does not answer."""
        board, asked, timeout_s = args.get("to"), args.get("args"), args.get("timeout_s")
        if not (isinstance(board, str) and isinstance(asked, Mapping) and isinstance(timeout_s, int | float)):
            raise EdgertError(f"expected a board, arguments and a time, got {show(board)}, {show(timeout_s)}")
        member = self._roster.get(board)
        if member is None or not member.present:
            return {}
        try:
            return {"answer": await self._directly(board, GATEWAY, asked, timeout_s)}
        except UnansweredError:
            return {}
        except RequestError as error:
            return {"refused": str(error)}

    def _others(self, board: str) -> list[str]:
        """Boards that may reach this one, as drawn."""
        able = [m.name for m in self._roster if m.state is State.ALIVE and m.name not in (self._name, board)]
        heard = [name for name in able if not self._is_silent(name)]
        return self._random.sample(heard, min(MOST_BY, len(heard)))

    def _is_silent(self, board: str) -> bool:
        member, since = self._roster.get(board), self._silent.get(board)
        return since is not None and (member is None or member.answered_at <= since)

    def _life(self, board: str) -> int:
        """The start of a board's agent by which this one knows it."""
        member = self._roster.get(board)
        return member.version.epoch if member else 0

    async def _directly(self, board: str, verb: str, args: Mapping[str, Any], timeout_s: float) -> Any:
        if self._is_silent(board):
            self._ping(board)
            raise UnansweredError(f"{board}: {verb}: it does not answer pings")
        asked = asyncio.ensure_future(self._request(board, verb, args, timeout_s))
        life, began = self._life(board), self._clock.monotonic()
        try:
            while not (await asyncio.wait([asked], timeout=PING_S))[0]:
                member, now = self._roster.get(board), self._clock.monotonic()
                if member is None or self._life(board) != life:
                    raise UnansweredError(f"{board}: {verb}: it has started anew meanwhile")
                if now - max(began, member.answered_at) >= lately_s(self._roster.present):
                    self._silent[board] = now
                    raise UnansweredError(f"{board}: {verb}: it does not answer pings")
                self._ping(board)
            return asked.result()
        finally:
            asked.cancel()
