"""Crowded boards hand operators over, and coordinators place flows anew, in one fleet: neither undoes the other's work.

A fleet on a virtual clock, decided for by the product's own code. The seed of each run is printed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.fleet.movable import Movable, check_leaving, crossing, movable
from agent.interference.exchange import Candidate, Exchange
from agent.interference.ring import NOTHING, board_ring
from agent.interference.score import Crowd, Footprint, Room
from agent.placement.problem.budget import Budget
from agent.placement.proposal import TwoReadings, propose
from agent.placement.replacement import Hysteresis, Replacement
from agent.placement.rules import Rules
from edgert.core.errors import EdgertError
from tests.agent.interference.worlds import flat

BOARDS: Final = ("a", "b", "c", "d")
DRAINED: Final = "d"
ROOM: Final = Room(0.95, 1e6)
LOOK_S: Final = 5.0
END_S: Final = 8100.0
QUIET_S: Final = 4200.0
"""Longer than an operator that moved stays where it is, and than a board waits that has made its moves, by rule."""
COPIES: Final = 4
OPERATORS: Final[dict[str, dict[str, Any]]] = {
    "read": {"source": True, "type": "mqtt_source", "inputs": []},
    **{f"window#{n}": {"source": False, "type": "tumbling_window", "inputs": ["read"]} for n in range(1, COPIES + 1)},
    "pinned": {"source": False, "type": "map", "inputs": ["read"]},
    "labelled": {"source": False, "type": "map", "inputs": ["read"]},
    "central": {"source": False, "type": "ship", "inputs": [f"window#{n}" for n in range(1, COPIES + 1)]},
}
LABELS: Final = {"a": frozenset({"gpu=yes"}), "b": frozenset[str](), "c": frozenset({"gpu=yes"})}
"""Of the boards that take operators."""
FREE: Final = Rules({"pinned": "a"}, {"labelled": frozenset({"gpu=yes"})})
RULES: Final = {"boards": FREE, "coordinator": Rules(FREE.pins, FREE.labels, "hybrid")}
"""By flow, which is named after what may move it."""


class Step(NamedTuple):
    at: float
    by: str
    flow: str
    operator: str
    source: str
    to: str


@dataclass
class World:
    """`on`: flow -> operator -> board. `load`: of each operator, in cores, drifting."""

    draw: random.Random
    on: dict[str, dict[str, str]]
    load: dict[tuple[str, str], float]
    busy: dict[tuple[str, str], float] = field(default_factory=dict)
    exchanges: dict[str, Exchange] = field(default_factory=lambda: {board: Exchange() for board in BOARDS})
    replacement: Replacement = field(default_factory=lambda: Replacement(Hysteresis(look_s=60.0)))
    plans: Counter[str] = field(default_factory=Counter)
    earlier: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def run(self, until: float) -> None:
        now = 0.0
        while now < until:
            now += LOOK_S
            for key, load in self.load.items():
                self.busy[key] = self.busy.get(key, 0.0) + load * self.draw.uniform(0.9, 1.1) * LOOK_S
            for board in self.draw.sample(BOARDS, len(BOARDS)):
                self._look_of_board(board, now)
            self._look_of_coordinator(now)

    def crowd(self, board: str) -> Crowd:
        rings = [flat(self.load[key]) for key in self.load if self.on[key[0]][key[1]] == board]
        return Crowd(board_ring(rings), ROOM)

    def _look_of_board(self, board: str, now: float) -> None:
        exchange, crowd = self.exchanges[board], self.crowd(board)
        exchange.peaks.observe(crowd.load, now)
        found: dict[str, Movable] = {}
        for flow, rules in RULES.items():
            figures = self.figures(board, now)["flows"][flow]
            rings = {name: flat(self.load[flow, name]) for name in figures["instances"]}
            part = {"assignment": {o: [at, -1] for o, at in self.on[flow].items()}, "rules": rules.plain()}
            found |= movable(flow, part, OPERATORS, figures, rings, board)
        footprints = {name: Footprint(one.ring) for name, one in found.items() if exchange.free(one.copies, now)}
        name = exchange.offer(crowd, footprints, now)
        if name is None:
            return
        others = [b for b in BOARDS if b not in (board, DRAINED) and not self.exchanges[b].cooling(now)]
        candidates = [
            Candidate(b, self.crowd(b), self.exchanges[b].peaks.load, crossing(found[name], b)) for b in others
        ]
        move = exchange.choose(name, footprints[name], crowd, candidates)
        most = exchange.most_there(footprints[name], crowd)
        if move is None or not self.exchanges[move.to].admits(
            footprints[name], self.crowd(move.to), most, now, exchange.urgent
        ):
            exchange.refused(found[name].copies, now)
            return
        load, urgent = crowd.share(footprints[name].ring), exchange.urgent
        exchange.gave(load, now)
        self.exchanges[move.to].took(found[name].copies, load, now, urgent)
        self._make(now, "board", found[name].flow, dict.fromkeys(found[name].operators, move.to))

    def _look_of_coordinator(self, now: float) -> None:
        flow, told = "coordinator", {board: self.figures(board, now) for board in BOARDS}
        readings: dict[str, TwoReadings] = {board: (self.earlier[board], told[board]) for board in self.earlier}
        self.earlier = told
        if not readings or not self.replacement.due(now, BOARDS):
            return
        rules, on = RULES[flow], self.on[flow]
        profiles = [
            {"gateway": board, "cpu": 1.0, "speed": 1.0, "memory": 2**30, "labels": LABELS.get(board, ()),
             "drained": board == DRAINED} for board in BOARDS
        ]  # fmt: skip
        found = propose(
            flow, rules.heuristic, readings, on, set(RULES), ["read", *rules.held_back(on, LABELS)], profiles,
            lambda a, b: 0.01, Budget(evaluations=100), self.draw.random, rules.for_problem(flow, LABELS),
        )  # fmt: skip
        if self.replacement.judge(now, found.now, found.then) == "change" and found.moves:
            self._make(now, "coordinator", flow, found.moves)
            self.replacement.changed(now)

    def figures(self, board: str, now: float) -> dict[str, Any]:
        edges = [{"from": i, "to": o, "rows": int(10 * now), "bytes": int(100 * now)} for o in OPERATORS
                 for i in OPERATORS[o]["inputs"]]  # fmt: skip
        flows = {
            flow: {
                "version": 1,
                "plan": self.plans[flow],
                "instances": {
                    o: {"busy_s": self.busy[flow, o], "operators": [o.partition("#")[0]]}
                    for o, at in on.items()
                    if at == board
                },
                "edges": [edge for edge in edges if on[edge["from"]] == board],
            }
            for flow, on in self.on.items()
        }
        return {"gateway": board, "monotonic": now, "flows": flows}

    def _make(self, now: float, by: str, flow: str, moves: Mapping[str, str]) -> None:
        for operator, to in moves.items():
            self.steps.append(Step(now, by, flow, operator, self.on[flow][operator], to))
            self.on[flow][operator] = to
        self.plans[flow] += 1


def world(seed: int) -> World:
    """Two flows that begin together on board `a`, where they need more than it has; operators that stay are light."""
    print(f"seed {seed}")
    draw = random.Random(seed)
    load = {
        (flow, operator): draw.uniform(0.24, 0.28) if operator.startswith("window") else 0.02
        for flow in RULES
        for operator in OPERATORS
    }
    on = {flow: dict.fromkeys(OPERATORS, "a") for flow in RULES}
    return World(draw, on, load)


@pytest.mark.parametrize("seed", range(3))
def test_both_come_to_rest_and_neither_moves_what_is_the_others(seed: int) -> None:
    fleet = world(seed)
    fleet.run(END_S)
    steps = fleet.steps
    print(*steps, sep="\n")
    assert {step.by for step in steps} == {"board", "coordinator"}, "both have moved something"
    assert {(step.by, step.flow) for step in steps} == {("board", "boards"), ("coordinator", "coordinator")}
    assert not {"read", "pinned"} & {step.operator for step in steps}
    assert DRAINED not in {step.to for step in steps}
    assert all(fleet.on[flow]["labelled"] in ("a", "c") for flow in RULES)
    assert max(step.at for step in steps) < END_S - QUIET_S, "both have come to rest"
    assert not list(_back(steps)), "no operator comes back to a board that it left"
    assert all(fleet.crowd(board).load.most < 1 for board in BOARDS), "no board is over its room"


def _back(steps: list[Step]) -> Iterator[Step]:
    left: set[tuple[str, str, str]] = set()
    for step in steps:
        if (step.flow, step.operator, step.to) in left:
            yield step
        left.add((step.flow, step.operator, step.source))


NAMES = st.sampled_from(["window", "window#1", "pinned", "central"])
ANY_RULES = st.builds(
    Rules,
    st.dictionaries(NAMES, st.sampled_from(BOARDS)),
    st.dictionaries(NAMES, st.frozensets(st.sampled_from(["gpu=yes"]))),
    st.sampled_from(["", "hybrid"]),
)


@given(ANY_RULES, ANY_RULES)
def test_a_board_offers_only_what_no_rule_keeps_and_the_coordinator_judges_by_the_newest_rules(
    known: Rules, newest: Rules
) -> None:
    on = dict.fromkeys(OPERATORS, "a")
    part = {"assignment": {operator: ["a", -1] for operator in on}, "rules": known.plain()}
    figures = {"instances": {operator: {"operators": [operator.partition("#")[0]]} for operator in on}}
    found = movable("f", part, OPERATORS, figures, dict.fromkeys(OPERATORS, NOTHING), "a")
    offered = {operator for one in found.values() for operator in one.operators}
    assert not (known.heuristic and offered), "the flow's coordinator places it anew"
    kept = {o for o in OPERATORS if known.pin_of(o) or known.labels_of(o) or OPERATORS[o]["source"]}
    assert offered == (set() if known.heuristic else OPERATORS.keys() - kept)
    for operator in offered:
        check_leaving("f", on, known, [operator], "a", drain=False)
        check_leaving("f", on, newest, [operator], "a", drain=True)
        if not newest.handed_over(operator):
            with pytest.raises(EdgertError, match="its rules keep"):
                check_leaving("f", on, newest, [operator], "a", drain=False)
    with pytest.raises(EdgertError, match="not on 'b' any more"):
        check_leaving("f", on, known, ["central"], "b", drain=True)
