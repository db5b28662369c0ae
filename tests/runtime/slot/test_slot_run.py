"""One slot's part in a checkpoint, frame by frame."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.core.batch import Batch
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError
from edgert.flow.plan import DAEMON
from edgert.links import frames
from edgert.operators.registry import REGISTRY
from edgert.runtime.instance.edges import Target, TurnOutput
from edgert.runtime.instance.instance import Instance
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.runtime.slot.credit import BACKLOG_BYTES, UNDER_WAY_BYTES
from edgert.runtime.slot.run import SlotRun
from edgert.scheduling.ranked import MinLatency
from tests.runtime.worlds import DOCUMENT, Wire
from tests.slots_here import located

WHERE = [0, 1, 0, 1]
"""in, ok+by, minute, out: each in another slot than those beside it."""


class Half:
    """Slot 0 of two."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.daemon, self.other = Wire(), Wire()
        self.pool = Pool(self.clock, workers=0)
        links: Any = {DAEMON: self.daemon, 1: self.other}
        self.run = SlotRun(
            5, 0, links, self.pool, REGISTRY, self.clock, DOCUMENT, 1, 1, "none", True, "",
            located(DOCUMENT, WHERE, "none"), 0, [], b""
        )  # fmt: skip
        self.run.start()

    @property
    def source(self) -> Any:
        return self.run.flow_run.stages["in"].instance

    def data(self, origin: int, place: int = 0, rows: int = 1) -> None:
        raw = ["raw", 10, 0.0, 1_000.0, ["x/a"] * rows, [b'{"time": 1, "v": 1}'] * rows, False]
        self.run.frame(origin, [frames.DATA, 5, place, 0, 0, raw])


@pytest.mark.parametrize(
    ("sources", "where", "near"),
    [
        (2, [0, 1, 0, 0, 1, 1, 0, 0], {"ok#1", "ok#2"}),
        (3, [0, 1, 0, 0, 1, 1, 1, 0, 0], {"ok#1"}),
        (2, [0, 0, 0, 0, 1, 1, 0, 0], {"ok#1", "ok#2", "ok#3", "ok#4"}),  # or slot 1 would have nothing to do
        (2, [0, 1, 1, 1, 1, 1, 0, 0], {"ok#1", "ok#2", "ok#3", "ok#4"}),
    ],
)
def test_batches_for_any_copy_stay_in_the_slot_unless_another_had_none_then(
    sources: int, where: list[int], near: set[str]
) -> None:
    operators = {name: dict(operator) for name, operator in DOCUMENT["operators"].items()}
    operators["in"]["instances"] = sources
    operators["ok"]["instances"] = 4
    links: Any = {DAEMON: Wire(), 1: Wire()}
    run = SlotRun(5, 0, links, Pool(VirtualClock(), workers=0), REGISTRY, VirtualClock(),
                  {**DOCUMENT, "operators": operators}, 1, 1, "chains", True, "",
                  located({**DOCUMENT, "operators": operators}, where, "chains"), 0, [], b"")  # fmt: skip
    out: TurnOutput[Instance] = []
    for _ in range(8):
        (edge,) = run.flow_run.instances["in#1"].edges.outputs[0]
        edge.give(Batch([{"time": 0.0, "source": "a", "v": 1}], 0.0), out)
    assert {f"ok#{target.instance.name[-1]}" for target, _ in out} == near


def test_the_policy_knows_how_far_it_is_to_a_sink_in_another_slot() -> None:
    policy = MinLatency()
    links: Any = {DAEMON: Wire(), 1: Wire()}
    pool = Pool(VirtualClock(), workers=0, policy=policy)
    run = SlotRun(
        5,
        0,
        links,
        pool,
        REGISTRY,
        VirtualClock(),
        DOCUMENT,
        1,
        1,
        "none",
        True,
        "",
        located(DOCUMENT, WHERE, "none"),
        0,
        [],
        b"",
    )
    run.start()
    hops = {name: policy.rank[run.flow_run.instances[name].schedule.number][0] for name in run.mine}
    assert hops == {"in": 3, "minute": 1}
    run.stop()
    assert run.remove()
    assert not policy.rank


def test_no_marker_is_sent_while_a_turn_is_under_way() -> None:
    half = Half()
    half.source.schedule.running = True
    half.run.frame(DAEMON, [frames.MARK, 5, 1, False, 2.0])
    half.run.advance(0.5)
    assert half.other.sent == []
    half.source.schedule.running = False
    half.run.advance(0.6)
    assert half.other.sent == [[frames.MARKER, 5, 1]]
    assert half.daemon.sent == [], "what the other slot has under way is to come first"
    half.run.frame(1, [frames.MARKER, 5, 1])
    half.run.advance(0.7)
    ((kind, run, checkpoint, queues, *_),) = half.daemon.sent
    assert (kind, run, checkpoint, queues) == (frames.CAPTURED, 5, 1, {})


def test_what_comes_behind_a_marker_is_not_in_the_checkpoint_and_is_not_lost() -> None:
    half = Half()
    half.data(DAEMON)
    half.run.frame(1, [frames.MARKER, 5, 1])
    half.data(1, place=2)
    half.run.frame(DAEMON, [frames.MARK, 5, 1, False, 2.0])
    half.data(DAEMON)
    half.run.advance(0.1)
    ((_, _, _, queues, *_),) = half.daemon.sent
    assert {name: len(entries) for name, entries in queues.items()} == {"in": 1}
    assert half.source.queue.rows == 2
    assert half.run.flow_run.stages["minute"].instance.queue.rows == 1


def test_a_slot_that_comes_to_no_boundary_says_so_and_goes_on() -> None:
    half = Half()
    half.source.schedule.running = True
    half.run.frame(DAEMON, [frames.MARK, 5, 1, False, 2.0])
    half.data(DAEMON)
    half.run.advance(2.5)
    ((*_, queues, deltas, _rows, _reports, fault, _state),) = half.daemon.sent
    assert (queues, deltas, fault) == (None, {}, "no batch boundary in time")
    assert half.source.queue.rows == 1
    half.run.frame(1, [frames.MARKER, 5, 1])  # of the one that was given up
    half.data(1, place=2)
    assert half.run.flow_run.stages["minute"].instance.queue.rows == 1


def test_with_stop_it_waits_to_be_told_what_next() -> None:
    half = Half()
    half.run.frame(1, [frames.MARKER, 5, 1])
    half.run.frame(DAEMON, [frames.MARK, 5, 1, True, 2.0])
    half.run.advance(0.1)
    assert half.daemon.kinds() == [frames.CAPTURED]
    half.data(DAEMON)
    half.run.advance(9.0)
    assert half.source.queue.rows == 0
    assert half.daemon.kinds() == [frames.CAPTURED]
    half.run.frame(DAEMON, [frames.ABORT, 5, 1])
    assert half.source.queue.rows == 1


def test_a_mark_gives_up_the_checkpoint_before_it_and_holds_what_came_in_between() -> None:
    half = Half()
    half.source.schedule.running = True  # as in a turn that takes long
    half.run.frame(DAEMON, [frames.MARK, 5, 1, False, 2.0])
    half.data(DAEMON)
    half.run.frame(DAEMON, [frames.MARK, 5, 2, True, 2.0])
    half.source.schedule.running = False
    half.run.frame(1, [frames.MARKER, 5, 2])
    half.run.advance(0.1)
    ((_, _, checkpoint, queues, *_),) = half.daemon.sent
    assert checkpoint == 2
    assert [len(entries) for entries in queues.values()] == [1]


def test_a_checkpoint_that_fits_no_flow_is_an_error_that_says_why() -> None:
    half = Half()
    links: Any = {DAEMON: half.daemon, 1: half.other}
    run = SlotRun(
        6,
        0,
        links,
        half.pool,
        REGISTRY,
        half.clock,
        DOCUMENT,
        1,
        1,
        "none",
        True,
        "",
        located(DOCUMENT, WHERE, "none"),
        0,
        [b"junk"],
        b"",
    )
    with pytest.raises(EdgertError, match="damaged"):
        run.start()


def test_who_feeds_a_full_queue_in_another_slot_waits_until_there_is_room() -> None:
    half = Half()
    half.run.frame(1, [frames.FULL, 5, 1])
    half.data(DAEMON)
    half.source.schedule.fast_turns = FAST_TURNS
    half.pool.lend(1.0)
    assert half.source.queue.rows == 1, "ok, in the other slot, takes no more"
    half.run.frame(1, [frames.ROOM, 5, 1])
    half.pool.lend(1.0)
    assert half.source.queue.rows == 0
    assert half.other.kinds() == [frames.DATA]


def test_a_queue_over_its_budget_is_told_once_to_each_slot_and_so_is_room() -> None:
    half = Half()
    minute = half.run.flow_run.stages["minute"].instance
    minute.queue.budget_bytes = 15
    for _ in range(3):
        half.data(1, place=2)
    half.run.say_where_room_is()
    assert half.other.sent == [[frames.FULL, 5, 2]]
    minute.queue.take_all()
    half.run.say_where_room_is()
    half.run.say_where_room_is()
    assert half.other.sent == [[frames.FULL, 5, 2], [frames.ROOM, 5, 2]]


def test_what_a_run_left_full_elsewhere_holds_nobody_up_when_it_has_ended() -> None:
    half = Half()
    half.run.frame(1, [frames.FULL, 5, 1])
    assert half.pool.backpressure.over
    half.run.stop()
    assert half.run.remove()
    assert not half.pool.backpressure.over


def test_a_row_that_cannot_be_packed_costs_itself_and_no_worker() -> None:
    half = Half()
    ok = half.run.flow_run.stages["ok"].instance
    batch = Batch([{"time": 1.0, "source": "a", "v": object()}], 0.0)
    assert half.source.send_away([(Target(ok, 0), batch), (Target(half.source, 0), batch)]) == [
        (Target(half.source, 0), batch)
    ]
    assert half.source.logic.drops["operator failed"] == 1
    assert half.other.sent == []


def test_a_link_that_takes_nothing_holds_up_who_feeds_it() -> None:
    half = Half()
    half.other.backlog_bytes = BACKLOG_BYTES + 1
    for _ in range(2):
        half.source.send_away([(Target(half.run.flow_run.stages["ok"].instance, 0), Batch([], 0.0))])
    assert len(half.pool.backpressure.over) == 1
    half.run.frame(1, [frames.FULL, 5, 1])
    half.other.backlog_bytes = 0
    half.run.say_where_room_is()
    assert len(half.pool.backpressure.over) == 1, "the queue at its other end is full still"
    half.run.frame(1, [frames.ROOM, 5, 1])
    assert not half.pool.backpressure.over


def test_who_sends_more_than_may_be_under_way_waits_until_it_was_taken() -> None:
    """In bytes as they count in a queue: packed they are many times less."""
    half = Half()
    ok = Target(half.run.flow_run.stages["ok"].instance, 0)
    for _ in range(3):
        half.source.send_away([(ok, Batch([], 0.0, size=UNDER_WAY_BYTES // 2))])
    half.run.say_where_room_is()
    assert half.pool.backpressure.over
    half.run.frame(1, [frames.TAKEN, 5, 1, UNDER_WAY_BYTES // 2])
    half.run.say_where_room_is()
    assert half.pool.backpressure.over, "half of it is to be left"
    half.run.frame(1, [frames.FULL, 5, 1])
    half.run.frame(1, [frames.TAKEN, 5, 1, UNDER_WAY_BYTES // 2])
    half.run.say_where_room_is()
    assert half.pool.backpressure.over, "the queue at the other end is full"
    half.run.frame(1, [frames.ROOM, 5, 1])
    assert not half.pool.backpressure.over


def test_what_was_taken_in_is_told_to_who_sent_it_when_it_stands_in_the_queue() -> None:
    half = Half()
    size = UNDER_WAY_BYTES // 8
    packed = ["rows", size, 0.0, 0.0, []]
    half.run.frame(1, [frames.MARKER, 5, 1])
    for _ in range(5):
        half.run.frame(1, [frames.DATA, 5, 2, 0, 0, packed])
    assert half.other.sent == [], "it waits aside"
    half.run.frame(DAEMON, [frames.MARK, 5, 1, False, 2.0])
    half.run.advance(0.1)
    told = [parts for parts in half.other.sent if parts[0] == frames.TAKEN]
    assert told == [[frames.TAKEN, 5, 2, 2 * size]] * 2


def test_what_is_fed_again_after_a_death_is_not_shed() -> None:
    half = Half()
    half.source.queue.budget_bytes = 15
    raw = ["raw", 10, 0.0, 1_000.0, ["x/a"], [b"{}"], False]
    for _ in range(5):
        half.run.frame(DAEMON, [frames.DATA, 5, 0, 0, 0, raw, True])
    assert (half.source.queue.rows, half.source.delivery.shed) == (5, 0)


def test_what_a_capture_took_and_could_not_say_is_in_no_later_checkpoint_either() -> None:
    """The next one would hold the position, and not the state that was taken with the one before."""
    half = Half()
    deltas: list[Any] = [{"in": {"bad": object()}}, {"in": {"good": 1}}]
    half.run._tell_capture = lambda: half.run._answer({}, deltas.pop(0), [], {}, "")  # type: ignore[method-assign]
    for checkpoint in (1, 2):
        half.run.frame(1, [frames.MARKER, 5, checkpoint])
        half.run.frame(DAEMON, [frames.MARK, 5, checkpoint, False, 2.0])
        half.run.advance(0.1 * checkpoint)
    faults = [parts[-2] for parts in half.daemon.sent]
    assert len(faults) == 2
    assert all("cannot be packed" in fault for fault in faults)


def test_a_state_that_is_too_large_for_a_frame_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon would take the frame for a damaged stream, and kill the slot with each checkpoint."""
    half = Half()
    monkeypatch.setattr(half.run.flow_run, "take_deltas", lambda into, mine: into.update({"in": b"x" * 10_000}))
    monkeypatch.setattr(frames, "MAX_FRAME", 10_000)
    half.run.frame(1, [frames.MARKER, 5, 1])
    half.run.frame(DAEMON, [frames.MARK, 5, 1, False, 2.0])
    half.run.advance(0.1)
    ((kind, *_, fault, _state),) = half.daemon.sent
    assert kind == frames.CAPTURED
    assert "cannot be packed: expected at most 10000 bytes for a frame of the kind captured" in fault


def test_a_marker_does_not_overtake_what_waits_behind_the_one_before() -> None:
    """The other slot gave up checkpoint 1, sent rows, and began checkpoint 2, before this one heard any of it from the
    daemon: those rows are in checkpoint 2."""
    half = Half()
    half.run.frame(1, [frames.MARKER, 5, 1])
    half.data(1, place=2)
    half.run.frame(1, [frames.MARKER, 5, 2])
    half.data(1, place=2, rows=7)
    half.run.frame(DAEMON, [frames.MARK, 5, 1, False, 2.0])
    half.run.frame(DAEMON, [frames.ABORT, 5, 1])
    half.daemon.sent.clear()
    half.run.frame(DAEMON, [frames.MARK, 5, 2, False, 2.0])
    half.run.advance(0.1)
    ((kind, _, checkpoint, queues, *_),) = half.daemon.sent
    assert (kind, checkpoint) == (frames.CAPTURED, 2)
    assert len(queues["minute"]) == 1
    assert half.run.flow_run.stages["minute"].instance.queue.rows == 8, "what came behind the second is there as well"


def test_a_slot_that_died_is_told_nothing_more_and_ends_no_other() -> None:
    half = Half()
    minute = half.run.flow_run.stages["minute"].instance
    minute.queue.budget_bytes = 1
    left: Any = {DAEMON: half.daemon}
    half.run.links = left
    half.data(1, place=2)
    half.data(1, place=2)
    assert minute.queue.rows == 2


def test_a_batch_that_finds_no_link_is_in_no_checkpoint_and_neither_is_what_it_was_made_of() -> None:
    half = Half()
    left: Any = {DAEMON: half.daemon}
    half.run.links = left
    half.data(DAEMON)
    half.source.schedule.fast_turns = FAST_TURNS
    half.pool.lend(1.0)
    assert half.source.queue.rows == 0, "it was worked on, and its result left out"
    half.run.frame(DAEMON, [frames.MARK, 5, 1, False, 2.0])
    half.run.advance(2.5)
    ((kind, _, checkpoint, queues, _, _, _, fault, *_),) = half.daemon.sent
    assert (kind, checkpoint, queues, fault) == (frames.CAPTURED, 1, None, "no batch boundary in time")
