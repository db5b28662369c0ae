"""What a walk's world consists of, as its seed wants it, at its beginning."""

from __future__ import annotations

import math
import random
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from edgert.core.clock import VirtualClock
from edgert.flow.options.full_outbox import WhenFull
from tests.protocol import kinds
from tests.protocol.board import Board, document
from tests.protocol.board_in_slots import BoardInSlots, stepped
from tests.protocol.central_side import CentralSide
from tests.protocol.dropping import Dropping
from tests.protocol.fleet_side import FleetSide
from tests.protocol.ledger import Ledger, Messages
from tests.protocol.sensors_broker import SensorsBroker

WALL: Final = 1_700_000_000.0

Covered = dict[str, dict[int, tuple[set[int], set[int]]]]
"""By flow and number of its last delta: (messages in its state, messages that had come), as far as is known."""


class State:
    """Gateway and both sides of it; nothing happens by itself."""

    def __init__(self, seed: int, folder: Path) -> None:
        draw = self.draw = random.Random(seed)
        self.folder = folder
        self.clock = VirtualClock(wall=WALL)
        self.unique = draw.random() < 0.6 and seed not in kinds.EQUAL
        """Whether each message has a payload of its own: then none is ambiguous."""
        self.qos = draw.choice([1, 1, 2])
        self.dropping = Dropping(seed) if seed in kinds.DROPPING else None
        self.may_rot, self.may_block = (
            seed in kinds.ROTS or seed in kinds.CARDS or seed in kinds.DROPPING[1::2],
            seed in kinds.BLOCKS,
        )
        self.strict = seed % 2 == 0 and not self.may_rot
        """Nothing in it may lose a message: each must be counted, and but for what left ahead of a checkpoint, once."""
        if seed in kinds.EQUAL:
            self.qos = 1 if seed % 4 == 1 else 2
        elif self.strict and not self.unique:
            self.qos = 2
        self.flows = {"a": "t/+/+", "b": draw.choice(["t/+/+", "t/0/+", "t/0/+"])}
        """By name: what it reads. One subscription for both, or two that overlap."""
        ahead, self.results_flow = (
            seed in kinds.AT_LEAST_ONCE,
            any(seed in k for k in (kinds.RESULTS_FLOW, kinds.QUOTA, kinds.CARDS, kinds.DROPPING)),
        )
        if seed in kinds.FILTERS:
            self.flows["b"] = "t/0/+"  # what both read is not told apart by who looks at the broker
        self.delivery = {"a": "exactly-once", "b": "at-least-once" if ahead else "exactly-once"}
        self.quota_bytes = 700 if seed in kinds.QUOTA else math.inf
        self.when_full: dict[str, WhenFull] = {"a": "stop-acknowledging", "b": "shed-oldest"}
        self.shed: Counter[str] = Counter()
        """Rows that made way in the outbox, by flow."""
        self.repeated: Counter[str] = Counter()
        """Rows that had left ahead of a checkpoint when the gateway was killed, by flow."""
        self.ledger = Ledger(self.flows)
        ids, low, durable = draw.choice([1, 1, 2, 4]), draw.random() < 0.5, draw.random() < 0.7
        self.broker = SensorsBroker(draw, self.ledger, self.qos, ids, low, durable or self.strict)
        self.broker.changes_in_one_step = seed in kinds.FILTERS
        self.may_forget = (draw.random() < 0.4) if seed not in kinds.EQUAL else seed % 4 == 3
        self.may_forget = self.may_forget and not self.strict
        self.may_go_back = (
            (draw.random() < 0.5 or seed in kinds.CARDS) and not self.strict and seed not in kinds.FILTERS
        )
        self.may_change = (draw.random() < 0.6 and seed not in kinds.CARDS) or seed in kinds.FILTERS
        self.letters = draw.choice(["x", "xy"])
        self.central = CentralSide(draw, self.clock, draw.choice([1, 2]), self.results_flow)
        # With chance of its own, so that a seed means the same whatever the fleet job does.
        self.fleet = FleetSide(random.Random(f"fleet {seed}"), self.central, self.flows, self.step, self.say)
        self.most = draw.randint(6, 30) * (3 if self.results_flow else 1) + 30 * (
            self.may_rot or self.may_block or seed in kinds.EQUAL
        )
        self.steps = 0
        self.said: list[str] = []
        """What happened, to be read."""
        self.topics: dict[int, str] = {}
        self.keys: dict[int, str] = {}
        self.in_slots = seed in kinds.SLOTS
        self._patches = ExitStack()
        if self.in_slots:
            self._patches.enter_context(stepped())
        self.covered: Covered = {name: {} for name in self.flows}
        self.went_back = False
        self.versions = Counter(list(self.flows))
        """By flow: what gives it another epoch adds one."""
        self.backups: list[tuple[Path, Messages, Covered, Counter[str]]] = []
        self.board: Board | None = self._start()
        for name in self.flows:
            self.board.deploy(self._document(name))
        self.board.connect()
        while self.broker.receive() or self.board.receive(9):
            pass
        self.board.uplink.connected()
        assert set(self.broker.session.subscriptions) == {*self.flows.values(), self.board.ingest.drops.topic}

    @property
    def path(self) -> Path:
        return self.folder / "gateway.db"

    def _start(self) -> Board:
        kind = BoardInSlots if self.in_slots else Board
        board = kind(self.path, self.broker, self.ledger, self.clock, self.central.broker.publish, self.quota_bytes)
        if self.dropping:
            self.dropping.watch(board)
        return board

    def _document(self, flow: str, description: str = "") -> Any:
        full = self.when_full[flow]
        return document(flow, self.flows[flow], self.qos, self.delivery[flow], full, description)

    def step(self) -> None:
        """One thing happens."""
        raise NotImplementedError

    def deploy(self, name: str) -> None:
        """A new version of a flow."""
        raise NotImplementedError

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        if self.board:
            self.board.crash()
        self._patches.close()
