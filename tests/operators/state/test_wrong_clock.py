"""A clock that was ahead for two seconds, then right: what it left behind is taken back, live and after a restart.

clock    now ── now + 20 years (2 s) ── now + 3 s ──▶       rows have no time of their own: theirs is their arrival
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Any

import pytest

from edgert.codecs.registry import make
from edgert.core.batch import CLOCK_IS_SET, NO_WATERMARK, Batch, RawBatch
from edgert.core.packing import pack, unpack
from edgert.core.text.topic_template import TopicTemplate
from edgert.operators.base.logic import Now
from edgert.operators.fusion.compiled_region import CompiledRegion
from edgert.operators.fusion.region import StageEdge
from edgert.operators.joins import JoinLatest
from edgert.operators.observations import JoinObservations
from edgert.operators.sketched import DistinctCount
from edgert.operators.sources.device_watermarks import new_board
from edgert.operators.sources.source import Source
from edgert.operators.state.aggregate_calls import parse_aggregate
from edgert.operators.state.partitioning import Divider
from edgert.operators.state.wrong_clock import TAKEN_BACK
from edgert.operators.windows import CONTRIBUTION, RESULT, TumblingWindow
from edgert.runtime.instance.edges import InputWatermarks, Spread, Target, TurnOutput
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from tests.runtime.pools import instance

START = CLOCK_IS_SET + 1e8
STEPS = pytest.mark.parametrize("step_s", [3_600.0, 86_400.0, 20 * 365.25 * 86_400], ids=["hour", "day", "20 years"])


def source() -> Source:
    return Source(TopicTemplate("room/{source}"), make("json", None))


def window() -> TumblingWindow:
    aggregates = (parse_aggregate("n", "count()"),)
    return TumblingWindow("minute", 10.0, aggregates, (("source", "string"),), ports=frozenset((RESULT, CONTRIBUTION)))


class World:
    """A source and a window, turn by turn; each turn is a second and brings one row without a time."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.source, self.window = source(), window()
        self.monotonic = 0.0
        self.counted = 0.0

    def turn(self, ahead: bool = False, fields: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.monotonic += 1.0
        wall = START + self.monotonic + (self.step_s if ahead else 0.0)
        now = Now(self.monotonic, wall)
        raw = RawBatch(["room/a"], [json.dumps({"v": 1, **fields}).encode()], self.monotonic, wall)
        for emission in self.source.process(raw, 0, now):
            for given in self.window.process(emission.batch, 0, now):
                if given.port == CONTRIBUTION:
                    self.counted += sum(row["n"] for row in given.batch.rows)

    def restart(self) -> None:
        for name, fresh in (("source", source()), ("window", window())):
            state = getattr(self, name).snapshot()
            fresh.restore(unpack(pack(state)))
            setattr(self, name, fresh)
        self.source.resumed(Now(self.monotonic, START + self.monotonic))

    def end(self) -> None:
        for given in self.window.flush(Now(self.monotonic, 0.0)):
            if given.port == CONTRIBUTION:
                self.counted += sum(row["n"] for row in given.batch.rows)


@STEPS
@pytest.mark.parametrize("restarts", [False, True], ids=["live", "restarted"])
def test_after_the_clock_was_ahead_for_two_seconds_no_row_is_late(step_s: float, restarts: bool) -> None:
    world = World(step_s)
    for _ in range(30):
        world.turn()
    for _ in range(2):
        world.turn(ahead=True)
    if restarts:
        world.restart()
    for _ in range(40):
        world.turn()
    assert world.window.drops["late"] == 0
    assert (world.source.drops[TAKEN_BACK], world.window.drops[TAKEN_BACK]) == (1, 1)
    assert START < world.source.devices.watermark < START + world.monotonic
    world.end()
    assert world.counted == 72


def test_marks_of_a_clock_that_was_never_wrong_stay() -> None:
    world = World(0.0)
    for n in range(200):
        # one device is ahead of time by more than the tolerance, as long as it likes
        world.turn(fields={"time": START + 1e9} if n % 3 == 0 else {})
    assert world.source.drops[TAKEN_BACK] == world.window.drops[TAKEN_BACK] == 0


def _times(step_s: float) -> list[tuple[float, Now]]:
    """(time of a row, clock) before, while and after the clock is ahead."""
    return [
        (START + 1.0, Now(1.0, START + 1.0)),
        (START + step_s, Now(2.0, START + step_s)),
        (START + 3.0, Now(3.0, START + 3.0)),
    ]


@STEPS
def test_join_latest_takes_the_setpoint_that_comes_after_it(step_s: float) -> None:
    made = JoinLatest(["source"], ["m"])
    for value, (time, now) in enumerate(_times(step_s)):
        made.process(Batch([{"time": time, "source": "a", "m": value}], 0.0, NO_WATERMARK), 1, now)
    (given,) = made.process(Batch([{"time": START + 4.0, "source": "a"}], 0.0, NO_WATERMARK), 0, now)
    assert given.batch.rows[0]["m"] == 2


@STEPS
def test_distinct_count_counts_on_after_it(step_s: float) -> None:
    made = DistinctCount("v", "n", ["source"], 60.0, 0.05)
    given = [
        made.process(Batch([{"time": time, "source": "a", "v": 1}], 0.0, 0.0), 0, now)[0].batch.rows[0]["n"]
        for time, now in _times(step_s)
    ]
    assert given == [1, 1, 1]
    assert made.drops == {TAKEN_BACK: 1}


@STEPS
def test_observations_wait_again_after_it(step_s: float) -> None:
    made = JoinObservations(["source"], ["x", "y"])
    for time, now in _times(step_s):
        made.process(Batch([], 0.0, time - 2.0), 0, now)
    assert made.watermark == START + 1.0
    assert made.drops == {TAKEN_BACK: 1}
    made.process(Batch([{"time": START + 3.0, "source": "a", "x": 1}], 0.0, START + 1.0), 0, now)
    (given,) = made.process(Batch([{"time": START + 3.0, "source": "a", "y": 2}], 0.0, START + 1.0), 0, now)
    assert given.batch.rows == [{"time": START + 3.0, "source": "a", "x": 1, "y": 2}]


def _window_state(window: TumblingWindow) -> int:
    """Rows that are in open windows or were shipped from them."""
    shipped = [
        row["n"] for given in window.flush(Now(0.0, 0.0)) if given.port == CONTRIBUTION for row in given.batch.rows
    ]
    return sum(shipped)


@STEPS
def test_compiled_into_one_function_with_its_source_a_window_takes_the_first_row_after_it(step_s: float) -> None:
    made, behind = source(), window()
    region = CompiledRegion([made, behind], [StageEdge(0, 0, 1, 0)], [(1, RESULT), (1, CONTRIBUTION)])
    counted = 0
    for turn in range(1, 60):
        # every turn is within the time in which a source does not look at its devices again
        monotonic = turn * 0.01
        wall = START + monotonic + (step_s if 20 <= turn < 30 else 0.0)
        raw = RawBatch(["room/a"] * 3, [b'{"v": 1}'] * 3, monotonic, wall)
        for given in region.process(raw, 0, Now(monotonic, wall)):
            if given.port == 1:
                counted += sum(row["n"] for row in given.batch.rows)
    assert behind.drops["late"] == 0
    assert made.drops[TAKEN_BACK] == behind.drops[TAKEN_BACK] == 1
    assert counted + _window_state(behind) == 3 * 59


@STEPS
def test_of_copies_of_a_source_one_that_has_not_heard_yet_moves_no_mark_of_the_others(step_s: float) -> None:
    board = new_board(2)
    copies = [source(), source()]
    for seat, made in enumerate(copies):
        made.join(board, seat)

    def turn(made: Source, monotonic: float, wall: float) -> float:
        raw = RawBatch(["room/a"], [b'{"v": 1}'], monotonic, wall)
        made.process(raw, 0, Now(monotonic, wall))
        return made.devices.watermark

    for made in copies:
        turn(made, 1.0, START + 1.0)
    for made in copies:
        turn(made, 2.0, START + 2.0 + step_s)
    marks = [turn(copies[0], 3.0 + n, START + 3.0 + n) for n in range(5)]
    assert max(marks) < START + 8.0, "the other copy still says what it heard by the wrong clock"
    assert turn(copies[1], 8.0, START + 8.0) < START + 8.0


@STEPS
def test_divided_among_copies_each_hears_that_the_mark_came_down(step_s: float) -> None:
    windows = [window(), window()]
    instances = [instance(str(n), made) for n, made in enumerate(windows)]
    for made in instances:
        made.edges.watermarks = {0: InputWatermarks(2)}
    edges = [
        Spread([Target(made, 0, producer) for made in instances], Divider((("source", "string"),), 2).divide)
        for producer in range(2)
    ]
    names = [next(n for n in map(str, range(99)) if Divider((("source", "string"),), 2).divide([{"source": n}])[k])
             for k in range(2)]  # fmt: skip

    def turn(time: float, wall: float, name: str) -> None:
        out: TurnOutput[Instance] = []
        for edge in edges:
            edge.give(Batch([{"time": time, "source": name}], 0.0, time - 2.0), out)
            edge.settle(out)
        for target, batch in out:
            target.instance.run([Entry(0, batch, producer=target.producer)], Now(0.0, wall))

    turn(START, START, names[0])
    turn(START + step_s, START + step_s, names[0])
    for n in range(3, 30):
        turn(START + n, START + n, names[0])
    assert [made.watermark for made in windows] == [START + 27.0] * 2, "the second had no rows, and hears of time"
    turn(START + 30.0, START + 30.0, names[1])
    assert [made.drops["late"] for made in windows] == [0, 0]


@pytest.mark.parametrize("step_s", [-86_400.0, -3_600.0, 3_600.0])
def test_what_came_by_a_wrong_clock_and_waited_until_it_was_right_is_not_late(step_s: float) -> None:
    """A stuck flow, or input that is fed again after a crash."""
    made, behind = source(), window()
    came = [(n, START + n + (step_s if 20 <= n < 30 else 0.0)) for n in range(60)]
    for monotonic, wall in came:
        raw = RawBatch(["room/a"], [b'{"v": 1}'], float(monotonic), wall)
        now = Now(100.0 + monotonic, START + 100.0 + monotonic)
        for emission in made.process(raw, 0, now):
            behind.process(emission.batch, 0, now)
    assert behind.drops["late"] == 0


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_turns_without_rows_between_those_that_bring_some_make_none_late(seed: int, fused: bool) -> None:
    """A turn without rows that takes the mark back has no other to give: the next row brings it."""
    draw = Random(seed)
    made, behind = source(), window()
    region = CompiledRegion([made, behind], [StageEdge(0, 0, 1, 0)], [(1, RESULT), (1, CONTRIBUTION)])
    monotonic, step_s, until = 0.0, 0.0, 0.3
    while monotonic < 6.0:
        monotonic += draw.choice((0.005, 0.02, 0.1))
        if monotonic > until:
            step_s = 0.0 if step_s else draw.choice((-86_400.0, -3_600.0, 86_400.0, 20 * 365.25 * 86_400.0))
            until = monotonic + draw.choice((0.05, 0.3, 1.2))
        topics = [f"room/{draw.randrange(8)}" for _ in range(draw.choice((0, 0, 1, 2, 4)))]
        now = Now(monotonic, START + monotonic + step_s)
        raw = RawBatch(topics, [b'{"v": 1}'] * len(topics), *now)
        if fused:
            region.process(raw, 0, now)
        for emission in () if fused else made.process(raw, 0, now):
            behind.process(emission.batch, 0, now)
    assert made.drops[TAKEN_BACK] > 0
    assert behind.drops["late"] == 0
