"""What a board takes that others offer it, and what a coordinator lets leave a board."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.fleet.drain import FleetDrain
from agent.fleet.moves import FleetMoves
from agent.interference.ring import NOTHING, pack
from agent.membership.members import Section
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError
from edgert.core.packing import pack as pack_plain
from edgert.core.settings.agent import Moves
from tests.agent.fleet.told import TOLD, member
from tests.agent.interference.worlds import flat

OFFER = {"copies": ["f/window"], "ring": pack(flat(0.1)), "most": 1.0}
DRAIN = {"drain": True}


class OneBoard:
    """Flow f with `window` on g1, pinned there, and `out` on g2; the agent is its coordinator, on g2."""

    def __init__(self, enabled: bool = True) -> None:
        self.made: list[Mapping[str, str]] = []
        flows = SimpleNamespace(add=lambda *_: None, changing=self.changing, running=self.running, change=self.change)
        self.gateway = SimpleNamespace(connected=True)
        rings = SimpleNamespace(board=NOTHING, cores=1.0, bandwidth=1e6, rings={})
        self.moves = FleetMoves(
            Moves(enabled=enabled), cast(Any, None), cast(Any, self.gateway), cast(Any, flows), cast(Any, rings),
            cast(Any, None), VirtualClock(),
        )  # fmt: skip

    @asynccontextmanager
    async def changing(self, flow: str) -> AsyncIterator[None]:
        yield

    async def running(self, flow: str) -> dict[str, Any]:
        assignment = {"window": ["g1", -1], "out": ["g2", -1]}
        return {"g1": {"plan": 1, "assignment": assignment, "rules": {"pins": {"window": "g1"}}}}

    async def change(self, flow: str, parts: Any, after: Mapping[str, str], why: Any) -> Any:
        self.made.append(after)

    def takes(self, asked: Mapping[str, Any]) -> bool:
        answer = asyncio.run(self.moves.serve_admission("g3", asked))
        return cast(bool, answer["admitted"])


def test_a_board_takes_what_crowded_boards_offer_and_what_people_drain() -> None:
    assert OneBoard().takes(OFFER)
    assert OneBoard().takes(DRAIN)


def test_a_board_that_is_drained_or_has_no_gateway_takes_neither() -> None:
    drained, away = OneBoard(), OneBoard()
    drained.moves.drained, away.gateway.connected = True, False
    assert [board.takes(asked) for board in (drained, away) for asked in (OFFER, DRAIN)] == [False] * 4


def test_a_board_where_moves_are_off_takes_only_what_people_drain() -> None:
    assert not OneBoard(enabled=False).takes(OFFER)
    assert OneBoard(enabled=False).takes(DRAIN)


@pytest.mark.parametrize(("moves", "drain", "why"), [
    ({"window": "g2"}, False, "its rules keep window"),
    ({"out": "g1"}, False, "out: not on 'g1' any more"),
    ({"out": "g1"}, True, "out: not on 'g1' any more"),
])  # fmt: skip
def test_a_coordinator_refuses_what_has_left_the_board_or_is_kept_there(
    moves: dict[str, str], drain: bool, why: str
) -> None:
    board = OneBoard()
    asked = {"flow": "f", "moves": moves, "from": "g1", "drain": drain}
    with pytest.raises(EdgertError, match=why):
        asyncio.run(board.moves._relieve(asked))
    assert board.made == []
    asyncio.run(board.moves._relieve({"flow": "f", "moves": {"window": "g2"}, "from": "g1", "drain": True}))
    assert board.made == [{"window": "g2", "out": "g2"}]


def test_the_boards_with_all_labels_are_found() -> None:
    able, other = member(TOLD), member(TOLD)
    other.name = "g3"
    able.sections["board"] = Section(2, 1, pack_plain({"labels": {"gpu": "yes"}}))
    drain = cast(Any, SimpleNamespace(_roster=[able, other]))
    assert FleetDrain._labelled(drain, frozenset({"gpu=yes"})) == {"g2"}
    assert FleetDrain._labelled(drain, frozenset()) == {"g2", "g3"}
